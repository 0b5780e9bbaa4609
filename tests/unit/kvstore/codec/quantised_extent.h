#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kvstore/codec/quantised.h"
#include "kvstore/codec/quantised_layout.h"

// Extents that the quantised codec encodes and decodes, and the arithmetic that its tests compare it
// with.

namespace tandem::quantised_test {

using Bytes = std::vector<std::byte>;
inline constexpr size_t kHeaderBytes = sizeof(codec::QuantisedHeader);

// The payload that the codec writes for an extent, into room that is larger than a payload can be:
// nothing of these tests is raw because it is small.
inline Bytes Encoded(QuantisedBits bits, const ExtentShape& shape, const Bytes& raw,
                     const ExtentPlace& place = {}) {
  Bytes payload(2 * shape.Bytes() + 4096);
  payload.resize(NewQuantisedCodec(bits)->Encode(shape, place, raw, payload).value_or(0));
  return payload;
}
inline bool Decodes(const ExtentShape& shape, const Bytes& payload) {
  Bytes raw(shape.Bytes());
  return NewQuantisedCodec({})->Decode(shape, 0, payload, raw);
}
inline Bytes Decoded(const ExtentShape& shape, const Bytes& payload) {
  Bytes raw(shape.Bytes(), std::byte{0x55});
  EXPECT_TRUE(NewQuantisedCodec({})->Decode(shape, 0, payload, raw));
  return raw;
}
inline Bytes BackAndForth(QuantisedBits bits, const ExtentShape& shape, const Bytes& raw,
                          const ExtentPlace& place = {}) {
  return Decoded(shape, Encoded(bits, shape, raw, place));
}

inline Bytes BytesOf(const std::vector<float>& values) {
  Bytes raw(values.size() * sizeof(float));
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}
inline std::vector<float> Normal(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The transform by its definition: +1 or -1 by the bits that both indices have.
inline std::vector<double> Rotated(std::span<const double> group) {
  std::vector<double> sums(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = 0; j < group.size(); ++j) {
      sums[i] += std::popcount(i & j) % 2 == 0 ? group[j] : -group[j];
    }
    sums[i] /= std::sqrt(static_cast<double>(group.size()));
  }
  return sums;
}
inline double Most(std::span<const double> values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}
inline int MostCode(int bits) { return (1 << (bits - 1)) - 1; }

// The root of the mean square of the error over that of the values.
inline double RelativeError(std::span<const double> before, std::span<const double> after) {
  double error = 0;
  double value = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    error += (after[i] - before[i]) * (after[i] - before[i]);
    value += before[i] * before[i];
  }
  return std::sqrt(error / value);
}

// Lets highway choose its target again for the next test.
class QuantisedTest : public testing::Test {
 protected:
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

}  // namespace tandem::quantised_test
