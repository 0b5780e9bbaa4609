#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tandem {

// Known tokens [begin, begin + count) of one sequence: of its prompt, and of its output too when
// it was preempted.
struct PrefillChunk {
  SequenceId id;
  int32_t begin = 0;
  int32_t count = 0;
  bool last = false;  // the next token is sampled after it
};

// A sequence that left the waiting queue. Its first `cached_tokens` tokens are attached from the
// prefix cache before the step; its first chunk begins behind them.
struct Admission {
  SequenceId id;
  int32_t cached_tokens = 0;
};

struct Preemption {
  enum class How : uint8_t {
    kRecompute,  // its blocks are given back at once; it waits to be computed again
    kSwap,       // its KV is copied to the host; its blocks come back when that is done
  };
  SequenceId id;
  How how = How::kRecompute;
};

// What one step does, in this order: a value. prefills and decodes together keep the token budget,
// where a decode counts as many tokens as its sequence is wide.
struct StepPlan {
  std::vector<SequenceId> expired;  // passed their deadline; already forgotten by the scheduler
  std::vector<Preemption> preempted;
  std::vector<SequenceId> swap_ins;  // there is room for their KV again
  std::vector<SequenceId> restores;  // worth loading their prefix from the host before admission
  std::vector<Admission> admitted;
  std::vector<PrefillChunk> prefills;
  std::vector<SequenceId> decodes;

  // Whether it computes nothing.
  bool empty() const { return prefills.empty() && decodes.empty(); }
  // Whether another plan made now may differ although nothing was computed.
  bool ChangesSomething() const {
    return !expired.empty() || !preempted.empty() || !swap_ins.empty() || !restores.empty() ||
           !admitted.empty();
  }
};

}  // namespace tandem
