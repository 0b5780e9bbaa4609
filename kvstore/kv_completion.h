#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"

namespace tandem {

// Names the KV of one swapped sequence until it is taken back or dropped.
using SwapId = StrongId<struct SwapIdTag, uint64_t>;

// The end of a copy between device and host.
struct KvCompletion {
  enum class Kind : uint8_t { kSwapOut, kSwapIn, kRestore, kDemote };
  Kind kind = Kind::kSwapOut;
  SwapId swap;          // for kSwapOut and kSwapIn
  int32_t blocks = 0;   // number of blocks copied
  Duration took{};      // from the first byte to the last
  absl::Status status;  // DATA_LOSS when the bytes from the host fail their checksum
};

}  // namespace tandem
