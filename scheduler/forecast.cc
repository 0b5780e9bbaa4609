#include "scheduler/forecast.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem {

void Forecast::ObserveEnd(const SequenceState& sequence) {
  expected_output_.Observe(sequence.num_output(), sequence.most_output() + 1);
}

int64_t Forecast::BlocksAt(const SequenceSpec& spec, int64_t tokens) const {
  const int64_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
  if (tokens <= spec.prompt_tokens) return blocks;
  const int64_t shared = spec.prompt_tokens / block_tokens_;
  return shared + spec.width * (blocks - shared);
}

// Each row that is about to write to a block that it shares copies the block first, and the source
// still exists while the copies are made: at worst there is one source for every two rows. A
// sequence that never writes behind its prompt copies nothing. A sequence whose KV another worker
// has evicted in part may have to be computed again here, with all of its prompt.
int64_t Forecast::MaxBlocks(const SequenceSpec& spec) const {
  const bool grows = spec.max_total_tokens > spec.prompt_tokens;
  SequenceSpec whole = spec;
  whole.prompt_tokens += spec.evicted_tokens;
  whole.max_total_tokens += spec.evicted_tokens;
  return BlocksAt(whole, whole.max_total_tokens) + (grows ? spec.width / 2 : 0) + KeptBlocks(spec);
}

// The expected future of one sequence. A sequence that is on the host or comes back from there does
// not hold a block for its last known token yet, so it grows by that token as well. Rows that share
// the last block of the prompt, and find it not full, copy it with their first tokens while it
// still exists.
SequenceForecast Forecast::Of(const SequenceState& sequence) const {
  const SequenceSpec& spec = sequence.spec;
  const bool swapped = sequence.phase == Phase::kSwapped || sequence.phase == Phase::kSwappingIn;
  const int32_t known = std::min(sequence.known_tokens, spec.max_total_tokens);
  const int32_t held = swapped ? std::min(sequence.known_tokens - 1, known) : known;
  const bool forks = spec.width > 1 && held <= spec.prompt_tokens;
  const int32_t free_slots = (block_tokens_ - held % block_tokens_) % block_tokens_;
  return {.steps_left = TokensLeft(sequence) + known - held,
          .rows = spec.width,
          .free_slots = free_slots,
          .copied_blocks = forks && free_slots > 0 ? spec.width : 0,
          .freed_blocks = BlocksAt(spec, held) - sequence.shared_tokens / block_tokens_,
          .kept_share = spec.output_share};
}

MemoryForecast Forecast::OfAdmitted(const SequenceBook& book, const CacheView& view) const {
  std::vector<SequenceForecast> sequences;
  int64_t pending_blocks = 0;
  for (const SequenceState& one : book.InPhase(Phase::kPrefilling)) {
    sequences.push_back(Of(one));
    pending_blocks += view.BlocksToReach(one.spec.id, one.known_tokens);
  }
  for (Phase phase : {Phase::kRunning, Phase::kParked, Phase::kSwappingIn}) {
    for (const SequenceState& one : book.InPhase(phase)) {
      sequences.push_back(Of(one));
      // When a parked sequence ends is not known, so the forecast does not count on its blocks.
      if (phase == Phase::kParked) sequences.back().freed_blocks = 0;
    }
  }
  MemoryForecast memory(block_tokens_, std::move(sequences));
  memory.AddPending(pending_blocks);
  return memory;
}

}  // namespace tandem
