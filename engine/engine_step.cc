// One step of the engine: plan, run, deliver.

#include <span>

#include "base/status.h"
#include "engine/engine_loop.h"
#include "spdlog/spdlog.h"

namespace tandem {

bool EngineLoop::Step() {
  const TimePoint now = clock_.Now();
  const StepPlan plan = scheduler_.Plan(now);
  for (SequenceId id : plan.expired) {
    Sequence& sequence = *Find(id);
    End(sequence, DeadlineExceeded("the deadline passed after {} of at most {} tokens",
                                   sequence.output.size(), sequence.request.max_tokens));
  }
  if (plan.empty()) return false;

  BuildChunks(plan, now);
  const auto num_decodes = static_cast<int32_t>(plan.decodes.size());
  const absl::Status status = runner_.Forward(chunks_, num_decodes, on_layer_stored_);
  scheduler_.Advance(plan);
  ++counts_.steps;
  if (status.ok()) {
    Collect(clock_.Now());
  } else {
    spdlog::error("step={} sequences={} failed: {}", counts_.steps, chunks_.size(),
                  status.ToString());
    for (const Chunk& chunk : chunks_) End(*chunk.sequence, status);
  }
  return true;
}

void EngineLoop::BuildChunks(const StepPlan& plan, TimePoint now) {
  chunks_.clear();
  for (const PrefillChunk& chunk : plan.prefills) {
    Sequence* const sequence = Find(chunk.id);
    if (chunk.begin == 0) BeginPrefill(*sequence, now);
    chunks_.push_back(
        {.sequence = sequence, .begin = chunk.begin, .count = chunk.count, .sampled = chunk.last});
    counts_.prompt_tokens += static_cast<uint64_t>(chunk.count);
  }
  for (SequenceId id : plan.decodes) {
    Sequence* const sequence = Find(id);
    const auto last = static_cast<int32_t>(sequence->num_tokens()) - 1;
    chunks_.push_back({.sequence = sequence, .begin = last, .count = 1, .sampled = true});
  }
}

void EngineLoop::BeginPrefill(Sequence& sequence, TimePoint now) {
  sequence.stages.queue = now - sequence.accepted;
  sequence.prefill_began = now;
  sequence.handoff_time_before = sender_.time_spent();
  if (sequence.outgoing) sender_.Open(sequence);
}

void EngineLoop::Collect(TimePoint computed) {
  const std::span<absl::StatusOr<SampledToken>> tokens = runner_.Sample(chunks_);
  size_t next = 0;
  for (const Chunk& chunk : chunks_) {
    absl::StatusOr<SampledToken>* const token = chunk.sampled ? &tokens[next++] : nullptr;
    Sequence& sequence = *chunk.sequence;
    if (sequence.outgoing && !sequence.outgoing->error.ok()) {
      const absl::Status error = sequence.outgoing->error;
      End(sequence, error);
    } else if (token != nullptr) {
      Deliver(chunk, *token, computed);
    }
  }
}

void EngineLoop::Deliver(const Chunk& chunk, absl::StatusOr<SampledToken>& token,
                         TimePoint computed) {
  Sequence& sequence = *chunk.sequence;
  if (!token.ok()) {
    spdlog::error("request={} sampling failed: {}", sequence.request.id, token.status().ToString());
    return End(sequence, token.status());
  }
  ++counts_.output_tokens;
  sequence.output.push_back(token->token_id);
  if (sequence.output.size() == 1) EndPrefill(sequence, computed);
  sequence.stream.Emit({&*token, 1}, sequence.stages);
  if (const FinishReason reason = sequence.StopReason(); reason != FinishReason::kNone) {
    return End(sequence, {.reason = reason});
  }
  if (sequence.outgoing) HandOff(sequence);
}

void EngineLoop::EndPrefill(Sequence& sequence, TimePoint computed) {
  StageTimes& stages = sequence.stages;
  const TimePoint now = clock_.Now();
  stages.transfer = sender_.time_spent() - sequence.handoff_time_before;
  stages.prefill = computed - sequence.prefill_began - stages.transfer;
  stages.first_token = now - computed;
  if (sequence.outgoing) sequence.outgoing->first_token = now;
}

void EngineLoop::HandOff(Sequence& sequence) {
  const absl::Status status = sender_.Commit(sequence);
  if (!status.ok()) return End(sequence, status);
  scheduler_.Park(sequence.id);
}

}  // namespace tandem
