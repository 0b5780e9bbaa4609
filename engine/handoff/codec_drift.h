#pragma once

#include <cstdint>

namespace tandem {

// Detects that the tables of a codec no longer fit the KV that it encodes: that the KV is
// compressed less than the KV from which the tables were made. Thread-compatible.
class CodecDrift {
 public:
  // Compression is judged over the extents of many prompts together: the ratio differs by less than
  // a hundredth between texts, but by more between layers.
  static constexpr uint64_t kWindowBytes = 32 << 20;
  static constexpr double kLeastShare = 0.97;

  // Adds an extent of a full block. True when it completes a window whose compression ratio is
  // below kLeastShare of `expected`, the ratio that was measured when the tables were made.
  bool Add(uint64_t kv_bytes, uint64_t wire_bytes, double expected) {
    kv_bytes_ += kv_bytes;
    wire_bytes_ += wire_bytes;
    if (kv_bytes_ < kWindowBytes) return false;
    const double ratio = static_cast<double>(kv_bytes_) / static_cast<double>(wire_bytes_);
    *this = {};
    return ratio < kLeastShare * expected;
  }

 private:
  uint64_t kv_bytes_ = 0;
  uint64_t wire_bytes_ = 0;
};

}  // namespace tandem
