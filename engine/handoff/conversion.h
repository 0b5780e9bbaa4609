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

// Room for payloads on their way into blocks of another layout: a fixed number of equal slots in
// memory of the device that the pool lies in, set aside at the start. Of the host's no page is
// touched before it is used.
// Thread-compatible.
class ConversionSlots {
 public:
  ConversionSlots() = default;  // none
  // Errors as Device::Allocate.
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

// Brings KV that came in other layouts into the pool: on the pool's device, many extents at once.
// Thread: one at a time, whatever else uses the Ops.
class KvConverter {
 public:
  // `pool` lies as `layout`, in memory of `device`; that and `ops` outlive this. Errors as
  // Device::NewStream.
  static absl::StatusOr<std::unique_ptr<KvConverter>> Create(Device& device, Ops& ops,
                                                             const KvLayout& layout,
                                                             const KvPoolView& pool);

  // The tokens of `wanted` that `extent` holds, of a sequence that lies as `from`, are to go to
  // `blocks`, that sequence's in the pool. `extent` stays as it is until Run returned.
  void Add(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
           std::span<const int32_t> blocks);
  // Converts all that was added and waits for the device. Once it returned nothing is read or
  // written any more; when it failed the places hold nothing.
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
