#include "kvstore/block_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::Status BlockTable::Reserve(BlockPool& pool, int64_t num_tokens) {
  const int64_t missing = CeilDiv(num_tokens, block_tokens_) - num_blocks();
  if (missing > pool.num_free()) {
    return ResourceExhausted("{} tokens need {} more blocks, {} of {} are free: retry later",
                             num_tokens, missing, pool.num_free(), pool.num_blocks());
  }
  for (int64_t i = 0; i < missing; ++i) {
    blocks_.push_back(*pool.Allocate());
    ids_.push_back(blocks_.back().id().value());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BlockCopy>> BlockTable::MakeWritable(BlockPool& pool, int64_t begin,
                                                                int64_t end) {
  TANDEM_CHECK(begin >= 0 && begin <= end && end <= capacity_tokens(),
               "a write past the table: reserve first");
  const int64_t first = begin / block_tokens_;
  const int64_t last = begin == end ? first : CeilDiv(end, block_tokens_);
  const int32_t needed = NumShared(begin, end);
  if (needed > pool.num_free()) {
    return ResourceExhausted("copy-on-write needs {} blocks, {} of {} are free: retry later",
                             needed, pool.num_free(), pool.num_blocks());
  }
  std::vector<BlockCopy> copies;
  copies.reserve(needed);
  for (int64_t i = first; i < last; ++i) {
    if (!blocks_[i].shared()) continue;
    BlockRef own = *pool.Allocate();
    ids_[i] = own.id().value();
    copies.push_back({.from = std::exchange(blocks_[i], std::move(own)), .to = BlockId(ids_[i])});
  }
  return copies;
}

BlockTable BlockTable::Fork() const {
  std::vector<BlockRef> blocks;
  blocks.reserve(blocks_.size());
  for (const BlockRef& block : blocks_) blocks.push_back(block.Share());
  return Over(block_tokens_, std::move(blocks));
}

BlockTable BlockTable::Over(int32_t block_tokens, std::vector<BlockRef> blocks) {
  BlockTable table(block_tokens);
  table.ids_.reserve(blocks.size());
  for (const BlockRef& block : blocks) table.ids_.push_back(block.id().value());
  table.blocks_ = std::move(blocks);
  return table;
}

const BlockRef& BlockTable::block(int32_t index) const {
  TANDEM_CHECK(index >= 0 && index < num_blocks(), "a block past the table");
  return blocks_[index];
}

int32_t BlockTable::NumShared(int64_t begin, int64_t end) const {
  if (begin >= end) return 0;
  const int64_t last = std::min<int64_t>(CeilDiv(end, block_tokens_), num_blocks());
  int32_t shared = 0;
  for (int64_t i = begin / block_tokens_; i < last; ++i) shared += blocks_[i].shared() ? 1 : 0;
  return shared;
}

void BlockTable::Truncate(int64_t num_tokens) {
  TANDEM_CHECK(num_tokens >= 0, "a negative number of tokens");
  const int64_t kept = CeilDiv(num_tokens, block_tokens_);
  while (num_blocks() > kept) {
    blocks_.pop_back();
    ids_.pop_back();
  }
}

void BlockTable::Remove(int32_t index) {
  TANDEM_CHECK(index >= 0 && index < num_blocks(), "a block past the table");
  blocks_.erase(blocks_.begin() + index);
  ids_.erase(ids_.begin() + index);
}

int64_t BlockTable::Slot(int64_t position) const {
  TANDEM_CHECK(position >= 0 && position < capacity_tokens(), "a position past the table");
  return int64_t{ids_[position / block_tokens_]} * block_tokens_ + position % block_tokens_;
}

std::vector<BlockRef> BlockTable::Pin(int32_t first, int32_t last) const {
  TANDEM_CHECK(first >= 0 && first <= last && last <= num_blocks(), "pins past the table");
  std::vector<BlockRef> pins;
  pins.reserve(last - first);
  for (int32_t i = first; i < last; ++i) pins.push_back(blocks_[i].Share(PinKind::kCopy));
  return pins;
}

std::vector<BlockId> HeldOnlyBy(const BlockPool& pool, std::span<const BlockTable> tables) {
  std::vector<int32_t> ids;
  for (const BlockTable& table : tables) {
    ids.insert(ids.end(), table.block_ids().begin(), table.block_ids().end());
  }
  std::ranges::sort(ids);
  std::vector<BlockId> held;
  for (size_t first = 0; first < ids.size();) {
    size_t last = first;
    while (last < ids.size() && ids[last] == ids[first]) ++last;
    const BlockId id(ids[first]);
    if (pool.pins(id).tables == static_cast<int32_t>(last - first)) held.push_back(id);
    first = last;
  }
  return held;
}

}  // namespace tandem
