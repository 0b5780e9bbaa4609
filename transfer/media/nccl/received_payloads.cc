#include "transfer/media/nccl/received_payloads.h"

#include "base/status.h"

namespace tandem {

uint64_t NcclHandleOf(uint32_t operation, size_t offset) {
  return uint64_t{operation} << 32 | offset;
}

absl::StatusOr<std::span<std::byte>> NcclReceivedPayloads::Expect(uint32_t bytes) {
  if (bytes == 0 || bytes > slot_.size()) {
    return InvalidArgument("the peer announces an NCCL operation of {} bytes: at most {} are taken",
                           bytes, slot_.size());
  }
  received_bytes_ = bytes;
  ++announced_;
  return slot_.first(bytes);
}

absl::StatusOr<std::span<const std::byte>> NcclReceivedPayloads::Find(uint64_t handle,
                                                                      size_t bytes) const {
  const auto operation = static_cast<uint32_t>(handle >> 32);
  const size_t offset = static_cast<uint32_t>(handle);
  if (announced_ == 0 || operation != announced_ - 1) {
    return InvalidArgument("a payload of the NCCL operation {} after {} were announced", operation,
                           announced_);
  }
  const bool inside = offset <= received_bytes_ && bytes <= received_bytes_ - offset;
  if (inside && bytes > 0) return slot_.subspan(offset, bytes);
  return InvalidArgument("a payload of {} bytes at {} of an NCCL operation of {}", bytes, offset,
                         received_bytes_);
}

}  // namespace tandem
