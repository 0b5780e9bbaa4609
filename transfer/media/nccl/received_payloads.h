#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

// The handle of a payload that comes by NCCL: the number of its operation, counted from 0, in the
// upper 32 bits, and its offset in the slot in the lower.
uint64_t NcclHandleOf(uint32_t operation, size_t offset);

// The payloads that a receiver may read: those of the latest operation that its peer announced.
// Thread: one.
class NcclReceivedPayloads {
 public:
  // Every operation is received into `slot`. An empty slot means that this side receives nothing.
  explicit NcclReceivedPayloads(std::span<std::byte> slot) : slot_(slot) {}

  // Where to receive the announced operation. Payloads of the operation before are not found any
  // more. INVALID_ARGUMENT for an impossible size.
  absl::StatusOr<std::span<std::byte>> Expect(uint32_t bytes);
  // INVALID_ARGUMENT for a payload that is not within the latest operation.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const;

 private:
  const std::span<std::byte> slot_;
  uint32_t announced_ = 0;     // operations
  size_t received_bytes_ = 0;  // of the latest operation
};

}  // namespace tandem
