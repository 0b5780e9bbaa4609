// Blocks at full and at expected length.
#include <algorithm>

#include "scheduler/scheduler.h"

namespace tandem {

// All rows share the prompt's full blocks; what comes behind these each has for itself.
int64_t Scheduler::BlocksAt(const SequenceSpec& spec, int64_t tokens) const {
  const int64_t size = options_.block_tokens;
  const int64_t blocks = (tokens + size - 1) / size;
  if (tokens <= spec.prompt_tokens) return blocks;
  const int64_t shared = spec.prompt_tokens / size;
  return shared + spec.width * (blocks - shared);
}

// A block that several rows are about to write is copied for each of them while the source still
// stands: at worst one source for every two rows.
int64_t Scheduler::MostBlocks(const SequenceSpec& spec) const {
  return BlocksAt(spec, spec.max_total_tokens) + spec.width / 2;
}

// Blocks from `held_tokens` on to the expected length; one that has outgrown that is expected to
// need one block more in each row.
int64_t Scheduler::Growth(const SequenceState& sequence, int32_t held_tokens) const {
  const SequenceSpec& spec = sequence.spec;
  const int32_t expected =
      spec.prompt_tokens + expected_output_.Tokens(spec.max_total_tokens - spec.prompt_tokens);
  const int32_t target = std::min(
      spec.max_total_tokens, std::max(expected, sequence.known_tokens + options_.block_tokens));
  const int32_t held = std::min(held_tokens, target);
  return BlocksAt(spec, target) - BlocksAt(spec, held);
}

int64_t Scheduler::GrowthOfAdmitted() const {
  int64_t blocks = 0;
  for (const SequenceState& one : InPhase(Phase::kPrefilling)) {
    blocks += Growth(one, one.computed_tokens);
  }
  for (Phase phase : {Phase::kRunning, Phase::kParked, Phase::kSwappingIn}) {
    for (const SequenceState& one : InPhase(phase)) blocks += Growth(one, one.known_tokens);
  }
  return blocks;
}

}  // namespace tandem
