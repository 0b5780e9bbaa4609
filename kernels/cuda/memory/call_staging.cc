#include "kernels/cuda/memory/call_staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem::cuda {

absl::Status CallStaging::Grow(Slot& slot, size_t bytes) {
  if (bytes <= slot.host.size()) return absl::OkStatus();
  const size_t size = std::max(kSlotBytes, std::bit_ceil(bytes));
  ASSIGN_OR_RETURN(slot.device, device_.Allocate(size));
  // The host's part is allocated last, because the next call looks at its size alone.
  ASSIGN_OR_RETURN(slot.host, device_.AllocateHost(size));
  return absl::OkStatus();
}

absl::Status CallStaging::Reserve(size_t bytes) {
  for (Slot& slot : slots_) {
    if (slot.ended != nullptr) RETURN_IF_ERROR(slot.ended->Synchronize());
    RETURN_IF_ERROR(Grow(slot, bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallStaging::Call> CallStaging::Begin(const CudaStream& stream, size_t room) {
  if (room == 0) return Call(nullptr);
  if (stream.recording()) {
    return FailedPrecondition(
        "an array of the call lies on the host alone, which a recording cannot hold: stage it");
  }
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  if (const std::unique_ptr<Event> ended = std::exchange(slot.ended, nullptr)) {
    RETURN_IF_ERROR(ended->Synchronize());
  }
  RETURN_IF_ERROR(Grow(slot, room));
  return Call(&slot);
}

const std::byte* CallStaging::Call::Place(std::span<const std::byte> bytes) {
  const size_t offset = used_;
  used_ += RoomFor<std::byte>(bytes.size());
  TANDEM_CHECK(slot_ != nullptr && used_ <= slot_->host.size(),
               "a call with more arrays than it said");
  if (!bytes.empty()) std::memcpy(slot_->host.data() + offset, bytes.data(), bytes.size());
  return slot_->device.data() + offset;
}

absl::Status CallStaging::Call::Upload(CudaStream& stream) {
  return slot_ == nullptr ? absl::OkStatus() : UploadTo(stream, slot_->device.data());
}

absl::Status CallStaging::Call::UploadTo(CudaStream& stream, std::byte* device) {
  return stream.Copy({device, used_}, slot_->host.bytes().first(used_));
}

absl::Status CallStaging::Call::End(CudaStream& stream) {
  if (slot_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(slot_->ended, stream.Record());
  return absl::OkStatus();
}

}  // namespace tandem::cuda
