#include "engine/loop/step.h"

#include <algorithm>

#include "base/log.h"
#include "engine/step_chunks.h"

namespace tandem {

StepRunner::StepRunner(const Parts& parts)
    : parts_(parts),
      applier_(parts.core),
      evictor_(parts.core, parts.computation),
      delivery_(parts.core, parts.handoffs, evictor_, parts.failed) {}

bool StepRunner::Run() {
  EngineCore& core = parts_.core;
  const TimePoint now = core.clock.Now();
  const TimePoint began = timer_.Begin(now);
  const StepPlan plan = core.scheduler.Plan(now, core.view);
  applier_.Apply(plan, now);
  if (plan.empty()) {
    if (plan.ChangesSomething()) return true;
    parts_.computation.OnPause();
    return false;
  }

  BuildChunks(plan);
  if (chunks_.empty()) {  // all of the plan's sequences ended while it was applied
    core.scheduler.Advance(plan);
    return true;
  }
  const auto is_decode = [](const Chunk& chunk) { return chunk.decode; };
  const auto num_decodes = std::count_if(chunks_.begin(), chunks_.end(), is_decode);
  absl::Status status =
      parts_.computation.Forward(chunks_, static_cast<int32_t>(num_decodes), parts_.layer_stored);
  // A step of decodes alone is not awaited here: its sampling is queued at once and waits for it,
  // so that the device does not pause in between.
  const bool decodes_alone = num_decodes == std::ssize(chunks_);
  if (status.ok() && !decodes_alone) status = parts_.computation.Await();
  core.scheduler.Advance(plan);
  ++steps_;
  if (!status.ok()) {
    parts_.progress.Count();
    Fail(status);
    return true;
  }
  parts_.progress.CountComputed();
  const TimePoint computed = core.clock.Now();
  const StepFeatures features = FeaturesOf(chunks_);  // before delivery, which may end sequences
  const std::span<absl::StatusOr<SampledToken>> tokens = parts_.computation.Sample(chunks_);
  // Prompt scoring takes time that the cost model does not cover, so steps with it are not
  // observed.
  const bool scores = std::ranges::any_of(chunks_, [](const Chunk& c) { return c.num_scored > 0; });
  delivery_.Deliver(chunks_, tokens, parts_.computation.prompt_logprobs(), computed);
  // Delivering the tokens is part of the step's time, because the next step has to wait for it.
  const TimePoint ended = core.clock.Now();
  timer_.End(ended);
  if (scores) return true;
  const Duration took = ended - began;
  core.latency.ObserveStep(features, took);
  core.costs.Observe(features, took);
  return true;
}

void StepRunner::Fail(const absl::Status& status) {
  LogError("step={} rows={} failed: {}", steps_, chunks_.size(), status.ToString());
  parts_.failed(status);
  std::vector<RequestId> failed;
  for (const Chunk& chunk : chunks_) failed.push_back(chunk.sequence->request.spec.id);
  RequestTable& requests = parts_.core.requests;
  for (const RequestId id : failed) {
    if (RequestState* const request = requests.Find(id)) requests.End(*request, status);
  }
}

void StepRunner::BuildChunks(const StepPlan& plan) {
  chunks_.clear();
  for (const PrefillChunk& chunk : plan.prefills) {
    Sequence* const sequence = parts_.core.requests.Find(chunk.id);
    if (sequence == nullptr) continue;  // its request has just expired
    const RequestState& request = sequence->request;
    const int32_t first_tokens = request.search || request.prefilled ? 1 : request.spec.n;
    chunks_.push_back({.sequence = sequence,
                       .begin = chunk.begin + sequence->evicted_tokens,
                       .count = chunk.count,
                       .samples = chunk.last ? first_tokens : 0});
    if (request.scores_prompt()) AddScores(request, chunks_.back());
    prompt_tokens_ += static_cast<uint64_t>(chunk.count);
  }
  for (const SequenceId id : plan.decodes) {
    if (Sequence* const sequence = parts_.core.requests.Find(id)) AddDecodes(*sequence);
  }
}

// Sets which of the prompt's log-probabilities a chunk gives. After a preemption it may compute a
// part of the prompt again whose log-probabilities were emitted already.
void StepRunner::AddScores(const RequestState& request, Chunk& chunk) {
  chunk.scored_begin = std::max(chunk.begin + 1, request.scored_tokens);
  const int32_t scored_end = std::min(chunk.end() + 1, request.prompt_tokens());
  chunk.num_scored = std::max(scored_end - chunk.scored_begin, 0);
}

void StepRunner::AddDecodes(Sequence& sequence) {
  for (size_t row = 0; row < sequence.rows.size(); ++row) {
    chunks_.push_back({.sequence = &sequence,
                       .row = static_cast<int32_t>(row),
                       .begin = sequence.num_tokens() - 1,
                       .count = 1,
                       .samples = 1,
                       .decode = true});
  }
}

void StepRunner::AddTo(EngineStats& stats) const {
  stats.steps = steps_;
  stats.prompt_tokens = prompt_tokens_;
  stats.output_tokens = delivery_.output_tokens();
  evictor_.AddTo(stats);
}

}  // namespace tandem
