#include "bench/simulator/step_loop.h"

#include <cmath>
#include <utility>

#include "base/status.h"

namespace tandem::simulator {
namespace {

// Every token that is sampled. Its value does not matter, but it must be the same after a resume.
const SampledToken kToken = {.token_id = 1, .logprob = 0, .top = {}};

}  // namespace

bool StepLoop::Begin() {
  WorkerCore& core = parts_.core;
  plan_ = core.scheduler.Plan(core.timeline.Now(), core.store);
  Apply(plan_);
  if (plan_.empty()) return plan_.ChangesSomething();
  features_ = TakeBlocks(plan_);
  const StepFeatures& features = features_;
  const double ms = core.config.model->steps.Step(features).count() * core.config.slowdown;
  took_ = Duration(std::llround(ms * 1e6));
  core.usage.busy += took_;
  ++core.usage.steps;
  core.usage.decodes += static_cast<uint64_t>(features.decode_sequences);
  core.usage.prompt_tokens += static_cast<uint64_t>(features.prefill_tokens);
  core.Note(Happening::kStep, {static_cast<uint64_t>(features.prefill_tokens),
                               static_cast<uint64_t>(features.decode_sequences),
                               static_cast<uint64_t>(features.decode_context)});
  running_ = true;
  core.timeline.After(took_, [this] { OnComputed(); });
  return false;
}

// Cached prefixes are attached before anything may evict them.
void StepLoop::Apply(const StepPlan& plan) {
  WorkerCore& core = parts_.core;
  for (const SequenceId id : plan.expired) {
    if (SimulatedSequence* const sequence = core.store.Find(id)) {
      core.End(*sequence, {.status = DeadlineExceeded("the deadline passed after {} of {} tokens",
                                                      sequence->emitted, sequence->max_tokens)});
    }
  }
  for (const Preemption& preemption : plan.preempted) Preempt(preemption.id);
  for (const Admission& admission : plan.admitted) Admit(admission);
  for (const Admission& admission : plan.admitted) {
    SimulatedSequence& sequence = core.store.Get(admission.id);
    if (sequence.target) core.store.Grow(sequence, KnownTokens(sequence));
  }
}

void StepLoop::Preempt(SequenceId id) {
  SimulatedSequence& sequence = parts_.core.store.Get(id);
  ++sequence.preemptions;
  parts_.core.store.Release(sequence);
}

void StepLoop::Admit(const Admission& admission) {
  WorkerCore& core = parts_.core;
  SimulatedSequence& sequence = core.store.Get(admission.id);
  core.store.Admit(sequence, admission.cached_tokens);
  if (sequence.prefilled || sequence.prefill_began != TimePoint{}) return;
  sequence.prefill_began = core.timeline.Now();
  sequence.stages.queue = sequence.prefill_began - sequence.accepted;
  sequence.cached_tokens = admission.cached_tokens;
}

StepFeatures StepLoop::TakeBlocks(const StepPlan& plan) {
  WorkerStore& store = parts_.core.store;
  StepFeatures features;
  for (const PrefillChunk& chunk : plan.prefills) {
    const int32_t end = chunk.begin + chunk.count;
    SimulatedSequence& sequence = store.Get(chunk.id);
    store.Grow(sequence, end);
    ++sequence.chunks;
    features.prefill_tokens += chunk.count;
    features.prefill_pairs += CausalPairs(chunk.begin, end);
  }
  decoding_.clear();
  for (const SequenceId id : plan.decodes) {
    SimulatedSequence& sequence = store.Get(id);
    decoding_.push_back(&sequence);
    store.Grow(sequence, KnownTokens(sequence));
    ++features.decode_sequences;
    features.decode_context += KnownTokens(sequence);
  }
  return features;
}

void StepLoop::OnComputed() {
  WorkerCore& core = parts_.core;
  if (core.dead) return;
  running_ = false;
  core.scheduler.Advance(plan_);
  core.costs.Observe(features_, took_);
  for (const PrefillChunk& chunk : plan_.prefills) {
    SimulatedSequence& sequence = core.store.Get(chunk.id);
    core.store.Computed(sequence, chunk.begin + chunk.count, !chunk.last);
    if (chunk.last) Sampled(sequence);
  }
  for (SimulatedSequence* const sequence : decoding_) Sampled(*sequence);
  parts_.step_ended();
}

void StepLoop::Sampled(SimulatedSequence& sequence) {
  WorkerCore& core = parts_.core;
  ++core.usage.output_tokens;
  ++sequence.emitted;
  const bool first = !std::exchange(sequence.prefilled, true);
  if (first) sequence.stages.prefill = core.timeline.Now() - sequence.prefill_began;
  sequence.stream.Emit(0, {&kToken, 1}, sequence.stages);
  if (sequence.emitted >= sequence.max_tokens) {
    sequence.stream.EndChoice({.reason = FinishReason::kLength});
    return core.End(sequence, {.reason = FinishReason::kLength});
  }
  if (first && sequence.target) parts_.hand_off(sequence);
}

}  // namespace tandem::simulator
