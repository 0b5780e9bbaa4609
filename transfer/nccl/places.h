#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

// The place of a payload that comes by NCCL: the number of its operation (32 bits, from 0 on) above
// its offset in the slot.
uint64_t NcclPlaceOf(uint32_t operation, size_t offset);

// What a receiver knows of the operations that its peer announced, and what places mean by that.
// Thread: one.
class NcclPlaces {
 public:
  // `slot`: where operations come to lie, one after the other. Empty: none is taken.
  explicit NcclPlaces(std::span<std::byte> slot) : slot_(slot) {}

  // Where the announced operation is to lie; what the one before brought is not found any more.
  // INVALID_ARGUMENT for a size that cannot be.
  absl::StatusOr<std::span<std::byte>> Expect(uint32_t bytes);
  // INVALID_ARGUMENT for what is not of the newest operation.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const;

 private:
  const std::span<std::byte> slot_;
  uint32_t announced_ = 0;     // operations
  size_t received_bytes_ = 0;  // of the newest of them
};

}  // namespace tandem
