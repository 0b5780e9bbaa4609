#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// The expected future of one sequence.
struct SequenceForecast {
  int32_t steps_left = 0;     // until it ends; each of its rows grows by one token per step
  int32_t rows = 0;           // 0: no sequence at all
  int32_t free_slots = 0;     // tokens that each row can still store in its last block
  int32_t copied_blocks = 0;  // copies of shared blocks that the next token of each row needs
  int64_t freed_blocks = 0;   // blocks held now that become free when the sequence ends
  double kept_share = 1;      // the share of the tokens by which its rows grow whose KV stays

  static bool EndsLater(const SequenceForecast& a, const SequenceForecast& b) {
    return a.steps_left > b.steps_left;
  }
};

// The expected future of all admitted sequences: how many blocks they will need beyond those that
// they hold now, at the worst moment. Outputs are assumed to end when their forecasts say, and each
// end frees blocks for the sequences that remain (the estimate of R. Gong et al., "Past-Future
// Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025).
class MemoryForecast {
 public:
  explicit MemoryForecast(int32_t block_tokens) : block_tokens_(block_tokens) {}
  // `sequences` may be in any order.
  MemoryForecast(int32_t block_tokens, std::vector<SequenceForecast> sequences);

  void Add(const SequenceForecast& sequence);

  // Adds blocks for tokens that are known and not computed yet; a negative number removes some.
  void AddPending(int64_t blocks) { pending_blocks_ += blocks; }

  // The most blocks that will be in use beyond those in use now, with `newcomer` as one more
  // sequence. Exact when the forecasts come true and no KV is evicted: slots that are free in the
  // last block of a row are filled first. Linear in the number of sequences.
  int64_t PeakGrowth(const SequenceForecast& newcomer = {}) const;

 private:
  const int32_t block_tokens_;
  std::vector<SequenceForecast> sequences_;  // the one that ends last comes first
  int64_t pending_blocks_ = 0;
};

}  // namespace tandem
