#include "kvstore/kv_store.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr int32_t kMaxBlocks = 1 << 24;

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::Create(const KvLayout& layout, int32_t num_blocks,
                                                         Device& device, Ops& ops) {
  RETURN_IF_ERROR(layout.Validate());
  if (num_blocks < 1 || num_blocks > kMaxBlocks) {
    return InvalidArgument("KV pool of {} blocks: give between 1 and {}", num_blocks, kMaxBlocks);
  }
  // Not touched here: a page of the pool costs memory once a token was stored in it.
  auto memory = device.Allocate(static_cast<size_t>(layout.BlockBytes()) * num_blocks);
  if (!memory.ok()) {
    return Annotate(memory.status(), fmt::format("KV pool of {} blocks of {} bytes", num_blocks,
                                                 layout.BlockBytes()));
  }
  return std::unique_ptr<KvStore>(new KvStore(layout, num_blocks, *std::move(memory), ops));
}

KvStore::KvStore(const KvLayout& layout, int32_t num_blocks, DeviceBuffer memory, Ops& ops)
    : layout_(layout), memory_(std::move(memory)), ops_(ops), pool_(num_blocks) {}

std::span<std::byte> KvStore::Extent(int32_t layer, BlockId block) const {
  TANDEM_CHECK(layer >= 0 && layer < layout_.num_layers, "no such layer");
  TANDEM_CHECK(pool_.count(block) > 0, "the extent of a free block");
  return {view().Extent(layer, block.value()), static_cast<size_t>(layout_.ExtentBytes())};
}

absl::Status KvStore::Execute(Stream& stream, std::vector<BlockCopy> copies) {
  if (copies.empty()) return absl::OkStatus();
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(copies.size());
  for (const BlockCopy& copy : copies) pairs.emplace_back(copy.from.id().value(), copy.to.value());
  // Sources may be let go of once the copies are queued: whatever writes into them later is queued
  // behind, on the same stream.
  RETURN_IF_ERROR(ops_.CopyBlocks(stream, {.pool = view(), .pairs = pairs}));
  copied_blocks_ += static_cast<int64_t>(pairs.size());
  return absl::OkStatus();
}

KvStats KvStore::stats() const {
  return {.total_blocks = pool_.num_blocks(),
          .free_blocks = pool_.num_free(),
          .shared_blocks = pool_.num_shared(),
          .copied_blocks = copied_blocks_};
}

}  // namespace tandem
