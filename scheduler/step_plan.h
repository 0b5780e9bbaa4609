#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tandem {

// Prompt tokens [begin, begin + count) of one sequence.
struct PrefillChunk {
  SequenceId id;
  int32_t begin = 0;
  int32_t count = 0;
  bool last = false;  // the first output token is sampled after it
};

// What one step computes: a value. prefills and decodes together keep the token budget.
struct StepPlan {
  std::vector<PrefillChunk> prefills;
  std::vector<SequenceId> decodes;   // one token each
  std::vector<SequenceId> admitted;  // left the waiting queue in this plan
  std::vector<SequenceId> expired;   // passed their deadline; already forgotten by the scheduler

  bool empty() const { return prefills.empty() && decodes.empty(); }
};

}  // namespace tandem
