#pragma once

#include "base/clock.h"
#include "engine/loop/core.h"
#include "engine/sequence.h"
#include "scheduler/step_plan.h"

namespace tandem {

// Carries out what a plan decides before its step is computed: requests whose deadline passed end,
// preempted sequences give up their blocks, admitted ones attach their cached prefix, and copies
// between device and host start.
// Thread: engine. `core` must outlive it.
class PlanApplier {
 public:
  explicit PlanApplier(EngineCore& core) : core_(core) {}

  void Apply(const StepPlan& plan, TimePoint now);

 private:
  void Expire(SequenceId id);
  void Preempt(const Preemption& preemption);
  void Admit(const Admission& admission, TimePoint now);
  void ReservePrompt(SequenceId id);
  void BeginPrefill(Sequence& sequence, int32_t cached_tokens, TimePoint now);
  void Restore(SequenceId id);

  EngineCore& core_;
};

}  // namespace tandem
