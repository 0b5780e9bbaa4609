#include "scheduler/memory_forecast.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tandem {
namespace {

// Rows of several sequences that all grow by the same number of tokens.
class GrowingRows {
 public:
  explicit GrowingRows(int32_t block_tokens)
      : block_tokens_(block_tokens), with_fewer_slots_(static_cast<size_t>(block_tokens)) {}

  void Add(const SequenceForecast& one) {
    copied_blocks_ += one.copied_blocks;
    if (one.kept_share < 1) return AddEvicting(one);
    rows_ += one.rows;
    for (int32_t slots = one.free_slots + 1; slots < block_tokens_; ++slots) {
      with_fewer_slots_[static_cast<size_t>(slots)] += one.rows;
    }
  }

  int64_t BlocksToGrow(int32_t tokens) const {
    if (tokens == 0) return 0;
    const int32_t rest = tokens % block_tokens_;
    const double kept_blocks = kept_per_token_ * tokens / block_tokens_;
    return copied_blocks_ + rows_ * (tokens / block_tokens_) +
           with_fewer_slots_[static_cast<size_t>(rest)] + evicting_rows_ +
           static_cast<int64_t>(std::ceil(kept_blocks));
  }

 private:
  // A row that evicts KV gives up a block when it needs one and has more than its share, so it may
  // hold one block more than its share.
  void AddEvicting(const SequenceForecast& one) {
    evicting_rows_ += one.rows;
    kept_per_token_ += one.rows * one.kept_share;
  }

  const int32_t block_tokens_;
  int64_t rows_ = 0;
  int64_t copied_blocks_ = 0;
  std::vector<int64_t> with_fewer_slots_;  // element i: rows that have fewer than i free slots
  int64_t evicting_rows_ = 0;              // rows that evict KV; they are not in rows_
  double kept_per_token_ = 0;              // kept by all evicting rows, per token of growth
};

}  // namespace

MemoryForecast::MemoryForecast(int32_t block_tokens, std::vector<SequenceForecast> sequences)
    : block_tokens_(block_tokens), sequences_(std::move(sequences)) {
  std::sort(sequences_.begin(), sequences_.end(), &SequenceForecast::EndsLater);
}

void MemoryForecast::Add(const SequenceForecast& sequence) {
  sequences_.insert(std::upper_bound(sequences_.begin(), sequences_.end(), sequence,
                                     &SequenceForecast::EndsLater),
                    sequence);
}

// The most blocks in use at any time. A peak lies just before a sequence ends. By then that
// sequence and all that end later have grown by its remaining steps, and the sequences that ended
// earlier have freed the blocks they hold now.
int64_t MemoryForecast::PeakGrowth(const SequenceForecast& newcomer) const {
  int64_t freed_blocks = newcomer.freed_blocks;
  for (const SequenceForecast& one : sequences_) freed_blocks += one.freed_blocks;
  int64_t peak = 0;
  GrowingRows rows(block_tokens_);
  const auto visit = [&](const SequenceForecast& one) {
    rows.Add(one);
    freed_blocks -= one.freed_blocks;
    peak = std::max(peak, rows.BlocksToGrow(one.steps_left) - freed_blocks);
  };
  bool visited = newcomer.rows == 0;
  for (const SequenceForecast& one : sequences_) {
    if (!visited && SequenceForecast::EndsLater(newcomer, one)) {
      visit(newcomer);
      visited = true;
    }
    visit(one);
  }
  if (!visited) visit(newcomer);
  return pending_blocks_ + peak;
}

}  // namespace tandem
