// One step of the engine: plan, run, deliver.

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "engine/engine_loop.h"

namespace tandem {

// What comes after the start, in parts, so that messages are handled in between. Whether it did
// something.
bool EngineLoop::Prepare() {
  if (!starting_) return false;
  const absl::StatusOr<bool> loaded = runner_.weights_loaded();
  if (!loaded.ok()) {
    warm_ = true;  // requests end with that error, which is each step's
    lost_(loaded.status());
    return false;
  }
  if (!*loaded) return false;
  const bool warms_up = !warm_;
  if (warms_up) WarmUp();
  starting_ = !warm_;
  return warms_up;
}

void EngineLoop::WarmUp() {
  const DecodeSteps decodes =
      on_layer_stored_ == nullptr ? DecodeSteps::kRecorded : DecodeSteps::kPlain;
  const absl::StatusOr<bool> last = runner_.WarmUp(decodes);
  warm_ = last.value_or(true);
  progress_.Count();
  if (last.ok()) return;
  LogWarn("warming up failed, the first steps do what it did not: {}", last.status().ToString());
  failed_(last.status());
}

bool EngineLoop::Step() {
  const TimePoint now = clock_.Now();
  const StepPlan plan = scheduler_.Plan(now, view_);
  Apply(plan, now);
  if (plan.empty()) return plan.ChangesSomething();

  BuildChunks(plan);
  if (chunks_.empty()) {  // all of them expired with a sibling
    scheduler_.Advance(plan);
    return true;
  }
  const auto is_decode = [](const Chunk& chunk) { return chunk.decode; };
  const auto num_decodes = std::count_if(chunks_.begin(), chunks_.end(), is_decode);
  absl::Status status =
      runner_.Forward(chunks_, static_cast<int32_t>(num_decodes), on_layer_stored_);
  // Sampling waits for decodes by itself, without a pause of the device in between.
  const bool decodes_alone = num_decodes == std::ssize(chunks_);
  if (status.ok() && !decodes_alone) status = runner_.Await();
  scheduler_.Advance(plan);
  ++counts_.steps;
  progress_.Count();
  if (status.ok()) {
    const TimePoint computed = clock_.Now();
    const std::span<absl::StatusOr<SampledToken>> tokens = runner_.Sample(chunks_);
    Observe((decodes_alone ? clock_.Now() : computed) - now);
    Collect(tokens, computed);
  } else {
    LogError("step={} rows={} failed: {}", counts_.steps, chunks_.size(), status.ToString());
    failed_(status);
    std::vector<RequestId> failed;
    for (const Chunk& chunk : chunks_) failed.push_back(chunk.sequence->request.spec.id);
    for (const RequestId id : failed) {
      if (const auto place = requests_.find(id); place != requests_.end()) {
        End(*place->second, status);
      }
    }
  }
  return true;
}

void EngineLoop::BuildChunks(const StepPlan& plan) {
  chunks_.clear();
  for (const PrefillChunk& chunk : plan.prefills) {
    Sequence* const sequence = Find(chunk.id);
    if (sequence == nullptr) continue;  // its request has just expired
    const RequestState& request = sequence->request;
    const int32_t first_tokens = request.search || request.prefilled ? 1 : request.spec.n;
    chunks_.push_back({.sequence = sequence,
                       .begin = chunk.begin,
                       .count = chunk.count,
                       .samples = chunk.last ? first_tokens : 0});
    counts_.prompt_tokens += static_cast<uint64_t>(chunk.count);
  }
  for (const SequenceId id : plan.decodes) {
    Sequence* const sequence = Find(id);
    if (sequence == nullptr) continue;
    for (size_t row = 0; row < sequence->rows.size(); ++row) {
      chunks_.push_back({.sequence = sequence,
                         .row = static_cast<int32_t>(row),
                         .begin = sequence->num_tokens() - 1,
                         .count = 1,
                         .samples = 1,
                         .decode = true});
    }
  }
}

void EngineLoop::Observe(Duration took) {
  StepFeatures features;
  for (const Chunk& chunk : chunks_) {
    if (chunk.decode) {
      ++features.decode_sequences;
      features.decode_context += chunk.end();
      continue;
    }
    features.prefill_tokens += chunk.count;
    features.prefill_pairs += CausalPairs(chunk.begin, chunk.end());
  }
  latency_.ObserveStep(features, took);
}

// By id: the end of one sequence may take others of its request along.
void EngineLoop::Collect(std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed) {
  struct Part {
    SequenceId id;
    int32_t computed_tokens = 0;
    size_t samples = 0;
  };
  std::vector<Part> parts;
  for (const Chunk& chunk : chunks_) {
    if (parts.empty() || parts.back().id != chunk.sequence->id) {
      parts.push_back({.id = chunk.sequence->id, .computed_tokens = chunk.end()});
    }
    parts.back().samples += static_cast<size_t>(chunk.samples);
  }
  size_t next = 0;
  for (const Part& part : parts) {
    Sequence* const sequence = Find(part.id);
    if (sequence != nullptr) {
      Deliver(*sequence, part.computed_tokens, tokens.subspan(next, part.samples), computed);
    }
    next += part.samples;
  }
}

void EngineLoop::Deliver(Sequence& sequence, int32_t computed_tokens,
                         std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed) {
  RequestState& request = sequence.request;
  if (request.outgoing && !request.outgoing->error.ok()) {
    const absl::Status error = request.outgoing->error;
    return End(request, error);
  }
  std::vector<SampledToken> sampled;
  for (absl::StatusOr<SampledToken>& token : tokens) {
    if (!token.ok()) {
      const absl::Status status = token.status();
      LogError("request={} sampling failed: {}", request.spec.id, status.ToString());
      failed_(status);
      return End(request, status);
    }
    sampled.push_back(*std::move(token));
  }
  // What beams decode after they have parted is nobody else's prefix. Nor is an answer where
  // prompts come in a narrower type: KV that is sent for it would be rounded, that of this worker
  // is not.
  if (sequence.rows.size() == 1 && !request.sent_dtype) {
    store_.Insert(sequence.key, sequence.rows.front().tokens, computed_tokens,
                  sequence.tables.front());
  }
  if (sampled.empty()) return;
  store_.Unexpect(sequence.id);
  counts_.output_tokens += sampled.size();
  const bool first = !std::exchange(request.prefilled, true);
  if (first) EndPrefill(request, computed);
  if (request.search) return DeliverBeams(sequence, sampled);
  return first ? DeliverFirst(sequence, sampled) : DeliverNext(sequence, sampled.front());
}

void EngineLoop::EndPrefill(RequestState& request, TimePoint computed) {
  StageTimes& stages = request.stages;
  const TimePoint now = clock_.Now();
  stages.transfer = sender_.time_spent() - request.handoff_time_before;
  stages.prefill = computed - request.prefill_began - stages.transfer;
  stages.first_token = now - computed;
  if (request.outgoing) request.outgoing->first_token = now;
}

void EngineLoop::DeliverFirst(Sequence& root, std::span<const SampledToken> first) {
  RequestState& request = root.request;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    request.stream.Emit(index, {&first[i], 1}, request.stages);
    const FinishReason reason = StopReasonOf(request.spec, first[i].token_id, 1);
    if (reason == FinishReason::kNone) continue;
    request.ended[i] = true;
    request.last_reason = reason;
    request.stream.EndChoice(
        {.index = index, .reason = reason, .cumulative_logprob = first[i].logprob});
  }
  if (request.AllEnded()) return End(request, {.reason = request.last_reason});
  return request.outgoing ? HandOff(root) : ForkChoices(root, first);
}

void EngineLoop::DeliverNext(Sequence& sequence, const SampledToken& token) {
  Row& row = sequence.rows.front();
  row.tokens.push_back(token.token_id);
  row.cumulative_logprob += token.logprob;
  sequence.request.stream.Emit(sequence.index, {&token, 1}, sequence.request.stages);
  const FinishReason reason = sequence.StopReason();
  if (reason != FinishReason::kNone) EndChoice(sequence, reason);
}

void EngineLoop::DeliverBeams(Sequence& sequence, std::span<const SampledToken> tokens) {
  RequestState& request = sequence.request;
  if (!request.outgoing || request.spec.max_tokens == 1) return AdvanceBeams(sequence, tokens);
  request.stream.EmitBeamStart(tokens.front(), request.stages);
  HandOff(sequence);
}

void EngineLoop::HandOff(Sequence& root) {
  const absl::Status status = sender_.Commit(root);
  if (!status.ok()) return End(root.request, status);
  scheduler_.Park(root.id);
}

}  // namespace tandem
