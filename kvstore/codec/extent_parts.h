#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

// The sizes of K or V, before and after encoding.
struct PartBytes {
  uint64_t kv_bytes = 0;    // before encoding
  uint64_t wire_bytes = 0;  // encoded
  // Values that were kept as they are because the code has no form for them: exponents without a
  // rank, or groups of channels with an extreme value.
  uint64_t escapes = 0;

  void Add(const PartBytes& other) {
    kv_bytes += other.kv_bytes;
    wire_bytes += other.wire_bytes;
    escapes += other.escapes;
  }
  friend bool operator==(const PartBytes&, const PartBytes&) = default;
};

// The sizes of K and V in one extent. Half of what they share, such as headers, counts for each.
struct ExtentParts {
  PartBytes k;
  PartBytes v;
  bool raw = true;  // sent without a codec

  friend bool operator==(const ExtentParts&, const ExtentParts&) = default;
};

// The part of K in an encoded payload.
struct KeyBytes {
  size_t bytes = 0;
  size_t escapes = 0;
  size_t all_escapes = 0;  // the escapes of K and of V

  friend bool operator==(const KeyBytes&, const KeyBytes&) = default;
};

}  // namespace tandem
