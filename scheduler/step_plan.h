#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tandem {

// Known tokens [begin, begin + count) of one sequence: tokens of its prompt, and also of its output
// when it was preempted or resumed.
struct PrefillChunk {
  SequenceId id;
  int32_t begin = 0;
  int32_t count = 0;
  bool last = false;  // the next token is sampled after this chunk
};

// A sequence that leaves the waiting queue. Its first `cached_tokens` tokens are attached from the
// prefix cache before the step; its first chunk begins behind them.
struct Admission {
  SequenceId id;
  int32_t cached_tokens = 0;
};

struct Preemption {
  enum class How : uint8_t {
    kRecompute,  // its blocks are freed at once; it waits until it is computed again
    kSwap,       // its KV is copied to the host; its blocks are freed when the copy has ended
  };
  SequenceId id;
  How how = How::kRecompute;
};

// The work of one step, to be done in the order of the fields; a value. The prefills and decodes
// together stay within the token budget, where a decode counts as many tokens as its sequence is
// wide.
struct StepPlan {
  std::vector<SequenceId> expired;  // their deadline passed; the scheduler has forgotten them
  std::vector<Preemption> preempted;
  std::vector<SequenceId> swap_ins;  // sequences on the host whose KV has room on the device again
  std::vector<SequenceId> restores;  // their prefix is worth copying from the host before admission
  std::vector<Admission> admitted;
  std::vector<PrefillChunk> prefills;
  std::vector<SequenceId> decodes;

  // Whether the step computes nothing.
  bool empty() const { return prefills.empty() && decodes.empty(); }
  // Whether the plan changes the state of a sequence, so that the next plan may differ even if
  // nothing was computed.
  bool ChangesSomething() const {
    return !expired.empty() || !preempted.empty() || !swap_ins.empty() || !restores.empty() ||
           !admitted.empty();
  }
};

}  // namespace tandem
