#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kvstore/codec/rounded.h"
#include "tests/unit/kvstore/codec/codec_data.h"

// Extents that the codec which rounds encodes and decodes.

namespace tandem::rounded_test {

using Bytes = std::vector<std::byte>;

inline std::unique_ptr<KvCodec> CodecFor(const ExtentShape& shape, float step,
                                         const KvSensitivity& sensitivity = {}) {
  CodecCalibrator calibrator({shape.dtype, shape.num_kv_heads, shape.head_dim, 64}, 1);
  calibrator.Add(0, LikeKv({shape.dtype, shape.num_kv_heads, shape.head_dim, 64}, 1));
  return NewRoundedCodec(std::make_shared<const CodecTables>(calibrator.Build(sensitivity)), step);
}

// The tables of a model with one head of 8 channels, all with the centre 1 and the spread 4.
inline CodecTables PlainTables() {
  const ExtentShape shape = {DType::kF32, 1, 8, 2};
  CodecTables::Side side = TablesFor(shape, 1).Of(0, 0);
  side.centres.assign(8, 0x3f80);
  side.spreads.assign(8, 0x4080);
  side.spread = 4;
  side.weight = 1;
  return CodecTables(shape, {side, side});
}

// The payload that the codec writes for an extent, into room that is larger than a payload can be:
// nothing of these tests is raw because it is small.
inline Bytes Encoded(const KvCodec& codec, const ExtentShape& shape, const Bytes& raw,
                     const ExtentPlace& place = {}) {
  Bytes payload(8 * shape.Bytes() + 4096);
  payload.resize(codec.Encode(shape, place, raw, payload).value_or(0));
  return payload;
}
inline bool Decodes(const KvCodec& codec, const ExtentShape& shape, const Bytes& payload) {
  Bytes raw(shape.Bytes());
  return codec.Decode(shape, 0, payload, raw);
}
inline Bytes Decoded(const KvCodec& codec, const ExtentShape& shape, const Bytes& payload) {
  Bytes raw(shape.Bytes(), std::byte{0x55});
  EXPECT_TRUE(codec.Decode(shape, 0, payload, raw));
  return raw;
}
inline Bytes BackAndForth(const KvCodec& codec, const ExtentShape& shape, const Bytes& raw,
                          const ExtentPlace& place = {}) {
  return Decoded(codec, shape, Encoded(codec, shape, raw, place));
}

inline Bytes BytesOf(const std::vector<float>& values) {
  Bytes raw(values.size() * sizeof(float));
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}
// Normal values around 3, with a deviation of 1.
inline std::vector<float> Normal(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(3, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The root of the mean square of the differences.
inline double Error(std::span<const double> before, std::span<const double> after) {
  double error = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    error += (after[i] - before[i]) * (after[i] - before[i]);
  }
  return std::sqrt(error / static_cast<double>(before.size()));
}

// Lets highway choose its target again for the next test.
class RoundedTest : public testing::Test {
 protected:
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

}  // namespace tandem::rounded_test
