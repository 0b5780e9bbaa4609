#include "kernels/step_staging.h"

#include <cstring>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kAlignment = 16;  // of vector loads

}  // namespace

absl::StatusOr<std::unique_ptr<StepStaging>> StepStaging::Create(Device& device,
                                                                 size_t capacity_bytes) {
  std::unique_ptr<StepStaging> staging(new StepStaging(capacity_bytes));
  if (device.is_host()) return staging;
  for (Slot& slot : staging->ring_) {
    ASSIGN_OR_RETURN(slot.host, device.AllocateHost(capacity_bytes));
  }
  ASSIGN_OR_RETURN(staging->device_memory_, device.Allocate(capacity_bytes));
  return staging;
}

absl::Status StepStaging::Begin() {
  current_ = (current_ + 1) % kRing;
  used_ = 0;
  if (const std::unique_ptr<Event> copied = std::exchange(ring_[current_].copied, nullptr)) {
    return copied->Synchronize();
  }
  return absl::OkStatus();
}

const std::byte* StepStaging::Place(std::span<const std::byte> bytes) {
  if (device_memory_.data() == nullptr) return bytes.data();
  const size_t offset = used_;
  used_ = (offset + bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  TANDEM_CHECK(used_ <= capacity_bytes_, "a step with more arrays than were planned for");
  if (!bytes.empty()) {
    std::memcpy(ring_[current_].host.data() + offset, bytes.data(), bytes.size());
  }
  return device_memory_.data() + offset;
}

absl::Status StepStaging::Upload(Stream& stream) {
  if (used_ == 0) return absl::OkStatus();
  Slot& slot = ring_[current_];
  RETURN_IF_ERROR(stream.Copy(device_memory_.bytes().first(used_), slot.host.bytes().first(used_)));
  ASSIGN_OR_RETURN(slot.copied, stream.Record());
  return absl::OkStatus();
}

}  // namespace tandem
