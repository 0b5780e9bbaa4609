#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/block_pool.h"
#include "kvstore/block_table.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// Counts at one moment, for status pages and the scheduler's view.
struct KvStats {
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;
  int32_t shared_blocks = 0;
  int64_t copied_blocks = 0;  // by copy-on-write, since the start
};

// The KV of one worker: the memory of all blocks, allocated once, and the pool that counts them.
// Thread: engine. `device` and `ops` must outlive it.
class KvStore {
 public:
  // INVALID_ARGUMENT for a layout or a number of blocks that cannot be; RESOURCE_EXHAUSTED with
  // the sizes when the device has not that much memory.
  static absl::StatusOr<std::unique_ptr<KvStore>> Create(const KvLayout& layout, int32_t num_blocks,
                                                         Device& device, Ops& ops);

  const KvLayout& layout() const { return layout_; }
  BlockPool& pool() { return pool_; }
  KvPoolView view() const { return layout_.PoolView(memory_.data(), pool_.num_blocks()); }
  // The bytes of one layer of one block.
  std::span<std::byte> Extent(int32_t layer, BlockId block) const;

  // Executes what BlockTable::MakeWritable asked for, then lets go of the sources. One call of
  // MakeWritable at a time: no block may be both read and written.
  absl::Status Execute(Stream& stream, std::vector<BlockCopy> copies);

  KvStats stats() const;
  absl::Status CheckInvariants() const { return pool_.CheckInvariants(); }

 private:
  KvStore(const KvLayout& layout, int32_t num_blocks, DeviceBuffer memory, Ops& ops);

  const KvLayout layout_;
  DeviceBuffer memory_;
  Ops& ops_;
  BlockPool pool_;
  int64_t copied_blocks_ = 0;
};

}  // namespace tandem
