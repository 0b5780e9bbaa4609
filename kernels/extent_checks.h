#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/status.h"
#include "kernels/device.h"

// The checks that every stream makes of the arguments of CopyAll and HashAll before it starts.
namespace tandem {

inline absl::Status CheckRoomForHashes(size_t num_extents, size_t room) {
  if (num_extents == room) return absl::OkStatus();
  return InvalidArgument("{} extents and room for {} hashes: the numbers must be equal",
                         num_extents, room);
}

inline absl::Status CheckCopySizes(std::span<const ExtentCopy> copies) {
  const auto unequal = std::ranges::find_if(
      copies, [](const ExtentCopy& copy) { return copy.dst.size() != copy.src.size(); });
  if (unequal == copies.end()) return absl::OkStatus();
  return InvalidArgument("copy {} of {} bytes into {}: the sizes must be equal",
                         unequal - copies.begin(), unequal->src.size(), unequal->dst.size());
}

}  // namespace tandem
