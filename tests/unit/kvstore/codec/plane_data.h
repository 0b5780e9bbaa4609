#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

// Planes of bytes, and payloads by their bytes.

namespace tandem::codec::plane_data {

using Plane = std::vector<uint8_t>;
using Payload = std::vector<std::byte>;

inline Plane RandomPlane(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Plane plane(size);
  for (uint8_t& byte : plane) byte = static_cast<uint8_t>(random());
  return plane;
}

inline Payload BytesOf(std::initializer_list<int> values) {
  Payload bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

}  // namespace tandem::codec::plane_data
