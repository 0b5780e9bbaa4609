#include "transfer/framed/staging.h"

#include <numeric>

#include "base/status.h"

namespace tandem {
namespace {

// Slots begin on pages of their own, because memory is locked by the page.
constexpr size_t kPageBytes = 4 << 10;

size_t StrideOf(size_t payload_bytes) {
  return (payload_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

StagedSlot::~StagedSlot() {
  if (pool_ != nullptr) pool_->GiveBack(index_);
}

std::span<std::byte> StagedSlot::bytes() const {
  return pool_->memory_.bytes().subspan(index_ * pool_->stride_bytes_, pool_->payload_bytes_);
}

absl::StatusOr<std::unique_ptr<StagingPool>> StagingPool::Create(Device& device,
                                                                 size_t payload_bytes,
                                                                 size_t total_bytes) {
  const size_t stride_bytes = StrideOf(payload_bytes);
  if (payload_bytes == 0 || total_bytes / 2 < stride_bytes) {
    return InvalidArgument(
        "{} bytes for the staging of payloads of {} bytes: must hold at least two of them, in "
        "whole pages",
        total_bytes, payload_bytes);
  }
  const size_t num_slots = total_bytes / stride_bytes;
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.AllocateHost(num_slots * stride_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  return std::unique_ptr<StagingPool>(
      new StagingPool(device.name(), payload_bytes, std::move(memory), std::move(stream)));
}

StagingPool::StagingPool(std::string device, size_t payload_bytes, DeviceBuffer memory,
                         std::unique_ptr<Stream> stream)
    : device_(std::move(device)),
      payload_bytes_(payload_bytes),
      stride_bytes_(StrideOf(payload_bytes)),
      memory_(std::move(memory)),
      num_slots_(memory_.size() / stride_bytes_),
      stream_(std::move(stream)),
      free_(num_slots_) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // the first slots are taken first
}

StagedSlot StagingPool::Take() {
  if (free_.empty()) return StagedSlot();
  const uint32_t index = free_.back();
  free_.pop_back();
  return StagedSlot(this, index);
}

absl::Status StagingPool::Copy(std::span<std::byte> dst, std::span<const std::byte> src) {
  return Failed(stream_->Copy(dst, src));
}

absl::Status StagingPool::Synchronize() { return Failed(stream_->Synchronize()); }

// A failing copy is not the peer's fault, and the streams may succeed over another link.
absl::Status StagingPool::Failed(const absl::Status& status) const {
  if (status.ok()) return status;
  return Unavailable("a payload could not be copied between {} and page-locked memory: {}", device_,
                     std::string(status.message()));
}

}  // namespace tandem
