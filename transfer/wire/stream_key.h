#pragma once

#include <cstdint>
#include <utility>

#include "transfer/wire/frame.h"

namespace tandem {

// Names a stream on the wire. The receiver gave out both numbers.
struct StreamKey {
  uint64_t stream = 0;
  uint64_t epoch = 0;

  friend bool operator==(const StreamKey&, const StreamKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const StreamKey& key) {
    return H::combine(std::move(state), key.stream, key.epoch);
  }
};

inline StreamKey KeyOf(const FrameHeader& header) {
  return {.stream = header.stream, .epoch = header.epoch};
}

}  // namespace tandem
