#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace tandem {

// The handle of a payload that comes by NCCL: the number of its operation, counted from 0, in the
// upper 32 bits, and its offset in the slot in the lower.
inline uint64_t NcclHandleOf(uint32_t operation, size_t offset) {
  return uint64_t{operation} << 32 | offset;
}

// The payloads that a receiver may read: those of the latest operation that its peer announced.
// Thread: one.
class NcclReceivedPayloads {
 public:
  // Every operation is received into `slot`. An empty slot means that this side receives nothing.
  explicit NcclReceivedPayloads(std::span<std::byte> slot) : slot_(slot) {}

  // Where to receive the announced operation. Payloads of the operation before are not found any
  // more. INVALID_ARGUMENT for an impossible size.
  absl::StatusOr<std::span<std::byte>> Expect(uint32_t bytes) {
    if (bytes == 0 || bytes > slot_.size()) {
      return InvalidArgument(
          "the peer announces an NCCL operation of {} bytes: at most {} are taken", bytes,
          slot_.size());
    }
    received_bytes_ = bytes;
    ++announced_;
    return slot_.first(bytes);
  }
  // Where a payload lies in the slot. INVALID_ARGUMENT when it is not within the latest operation.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const {
    const auto operation = static_cast<uint32_t>(handle >> 32);
    const size_t offset = static_cast<uint32_t>(handle);
    if (announced_ == 0 || operation != announced_ - 1) {
      return InvalidArgument("a payload of the NCCL operation {} after {} were announced",
                             operation, announced_);
    }
    const bool inside = offset <= received_bytes_ && bytes <= received_bytes_ - offset;
    if (inside && bytes > 0) return slot_.subspan(offset, bytes);
    return InvalidArgument("a payload of {} bytes at {} of an NCCL operation of {}", bytes, offset,
                           received_bytes_);
  }

 private:
  const std::span<std::byte> slot_;
  uint32_t announced_ = 0;     // the number of operations so far
  size_t received_bytes_ = 0;  // bytes of the latest operation
};

}  // namespace tandem
