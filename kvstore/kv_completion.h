#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"

namespace tandem {

// KV that left the device, until it is taken back or dropped.
using SwapId = StrongId<struct SwapIdTag, uint64_t>;

// A copy that has ended.
struct KvCompletion {
  enum class Kind : uint8_t { kSwapOut, kSwapIn, kRestore, kDemote };
  Kind kind = Kind::kSwapOut;
  SwapId swap;          // of the first two
  int32_t blocks = 0;   // copied
  Duration took{};      // from its first byte to its last
  absl::Status status;  // DATA_LOSS: what came from the host was not what went there
};

}  // namespace tandem
