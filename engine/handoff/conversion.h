#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/kv_convert.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// Memory for payloads that must be converted to the layout of the pool: a fixed number of equal
// slots in the memory of the pool's device, allocated at the start. On the host no page is touched
// before it is used. Thread-compatible.
class ConversionSlots {
 public:
  ConversionSlots() = default;  // an empty set of slots
  // Allocates the slots. Errors are those of Device::Allocate.
  static absl::StatusOr<ConversionSlots> Create(Device& device, int32_t count, int64_t slot_bytes) {
    ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(static_cast<size_t>(count * slot_bytes)));
    return ConversionSlots(count, slot_bytes, std::move(memory));
  }

  bool all_taken() const { return free_.empty(); }
  std::optional<int32_t> Take() {
    if (free_.empty()) return std::nullopt;
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void GiveBack(int32_t slot) { free_.push_back(slot); }
  int64_t slot_bytes() const { return slot_bytes_; }
  std::byte* At(int32_t slot) const { return memory_.data() + slot * slot_bytes_; }

 private:
  ConversionSlots(int32_t count, int64_t slot_bytes, DeviceBuffer memory)
      : slot_bytes_(slot_bytes), memory_(std::move(memory)), free_(static_cast<size_t>(count)) {
    std::iota(free_.begin(), free_.end(), 0);
  }

  int64_t slot_bytes_ = 0;
  DeviceBuffer memory_;
  std::vector<int32_t> free_;
};

// Converts KV that arrived in other layouts into the pool, on the pool's device, many extents at
// once. Thread: one at a time; other threads may use the Ops meanwhile.
class KvConverter {
 public:
  // `pool` has the layout `layout` and is in the memory of `device`. `device` and `ops` must
  // outlive this. Errors as Device::NewStream.
  static absl::StatusOr<std::unique_ptr<KvConverter>> Create(Device& device, Ops& ops,
                                                             const KvLayout& layout,
                                                             const KvPoolView& pool);

  // Adds an extent for Run to convert: those of its tokens that are in `wanted`. The extent has the
  // layout `from`; `blocks` are the sequence's blocks in the pool. The bytes of `extent` must stay
  // unchanged until Run has returned.
  void Add(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
           std::span<const int32_t> blocks);
  // Converts all extents that were added and waits for the device, so nothing is read or written
  // afterwards. After an error the tokens' slots in the pool hold no valid KV.
  absl::Status Run();

 private:
  struct OfOneLayout {
    KvLayout from;
    std::vector<KvRun> runs;
  };

  KvConverter(Ops& ops, const KvLayout& layout, const KvPoolView& pool,
              std::unique_ptr<Stream> stream)
      : ops_(ops), layout_(layout), pool_(pool), stream_(std::move(stream)) {}

  Ops& ops_;
  const KvLayout layout_;
  const KvPoolView pool_;
  const std::unique_ptr<Stream> stream_;
  std::vector<OfOneLayout> added_;
};

}  // namespace tandem
