#pragma once

#include <cstdint>

namespace tandem {

// Notices that the tables of a codec no longer fit the KV that it encodes, because that becomes less small
// than the KV that the tables were made of. Thread-compatible.
class CodecDrift {
 public:
  // Texts differ by less than a hundredth in how small their KV becomes, layers by more; so the extents of
  // many prompts are taken together.
  static constexpr uint64_t kWindowBytes = 32 << 20;
  static constexpr double kLeastShare = 0.97;

  // Adds a full extent. Whether the window that it completes became smaller by less than kLeastShare of
  // `expected`, the ratio that was measured when the tables were made.
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
