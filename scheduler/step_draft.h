#pragma once

#include <cstdint>

#include "scheduler/cache_view.h"
#include "scheduler/sequence_state.h"
#include "scheduler/step_plan.h"

namespace tandem {

// A step while it is planned: the plan so far, and what is left of its budgets.
struct StepDraft {
  const CacheView& view;
  StepPlan plan;
  int32_t tokens = 0;  // what is left of max_step_tokens
  int32_t blocks = 0;  // what is left of the available blocks
  // The highest ranked sequence among those on the host, or on their way there, that do not come
  // back in this step. No sequence that ranks below it is admitted. Null when there is none.
  const SequenceState* highest_swapped = nullptr;
};

}  // namespace tandem
