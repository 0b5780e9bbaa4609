#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tandem {

// Lengths of outputs, in bins: each of 1 to 15 has its own, and each power of two from there to
// 2^20 is cut into eight. Longer outputs count into the last bin.
class LengthBins {
 public:
  static constexpr int32_t kCount = 15 + 8 * 16;

  // The bin of a length, which is at least 1.
  static constexpr int32_t Of(int32_t length) {
    if (length < 16) return length - 1;
    const int32_t octave = std::bit_width(static_cast<uint32_t>(length)) - 5;  // 0: lengths from 16
    const int32_t eighth = (length >> (octave + 1)) - 8;
    return std::min(15 + 8 * octave + eighth, kCount - 1);
  }
  // Begin: the shortest length of the bin. End: that of the next bin.
  static constexpr int32_t Begin(int32_t bin) {
    if (bin < 15) return bin + 1;
    return (8 + (bin - 15) % 8) << ((bin - 15) / 8 + 1);
  }
  static constexpr int32_t End(int32_t bin) { return Begin(bin + 1); }
};

}  // namespace tandem
