#include "transfer/framed/staging.h"

#include <algorithm>

#include "base/status.h"

namespace tandem {
namespace {

// Slots begin on pages of their own, because memory is locked by the page.
constexpr size_t kPageBytes = 4 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<StagingPool>> StagingPool::Create(Device& device,
                                                                 size_t payload_bytes,
                                                                 size_t total_bytes) {
  const size_t slot_bytes = (payload_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (payload_bytes == 0 || total_bytes / 2 < slot_bytes) {
    return InvalidArgument(
        "{} bytes for the staging of payloads of {} bytes: must hold at least two of them, in "
        "whole pages",
        total_bytes, payload_bytes);
  }
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.AllocateHost(total_bytes / slot_bytes * slot_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  return std::unique_ptr<StagingPool>(new StagingPool(
      device.name(), payload_bytes, std::make_shared<SlotPool>(std::move(memory), slot_bytes),
      std::move(stream)));
}

absl::Status StagingPool::Copy(std::span<std::byte> dst, std::span<const std::byte> src) {
  return Failed(stream_->Copy(dst, src));
}

absl::Status StagingPool::Synchronize() { return Failed(stream_->Synchronize()); }

// The status of a copy between a device and its slot. A failing copy is UNAVAILABLE, because it is
// not the peer's fault and the streams may succeed over another link.
absl::Status StagingPool::Failed(const absl::Status& status) const {
  if (status.ok()) return status;
  return Unavailable("a payload could not be copied between {} and page-locked memory: {}", device_,
                     std::string(status.message()));
}

MemorySlot OutboundStaging::Take(uint64_t id, size_t held) {
  const bool may = waiting_.empty() || turn_ == id;
  if (may && pool_->slots().num_free() > held) return pool_->slots().Take();
  if (held == 0 && std::ranges::find(waiting_, id) == waiting_.end()) waiting_.push_back(id);
  return MemorySlot();
}

std::optional<uint64_t> OutboundStaging::BeginTurn() {
  if (!has_turn()) return std::nullopt;
  turn_ = waiting_.front();
  waiting_.pop_front();
  return turn_;
}

}  // namespace tandem
