#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/float_fields.h"

namespace tandem {

// Any bits: NaN, infinities and denormals among them.
inline std::vector<std::byte> RandomBits(const ExtentShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> raw(shape.Bytes());
  for (std::byte& byte : raw) byte = static_cast<std::byte>(random());
  return raw;
}

// The bits of `value` in a type, rounded towards zero; f8e4m3 by its exponent alone.
template <typename Fields>
typename Fields::Word WordOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  constexpr int kMantissaBits = Fields::kRestBits - 1;
  constexpr int kBias = Fields::kExponent / 2;
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + kBias;
  const uint32_t rest = bits >> 31 << kMantissaBits | (bits & 0x7fffff) >> (23 - kMantissaBits);
  return Fields::Join(static_cast<uint8_t>(std::max(exponent, 0)),
                      static_cast<typename Fields::Word>(rest));
}

// The number that the bits of a type are, by its definition. f8e4m3 and what is not finite apart.
template <typename Fields>
double ValueOf(typename Fields::Word word) {
  constexpr int kMantissaBits = Fields::kRestBits - 1;
  constexpr int kBias = Fields::kExponent / 2;
  const int exponent = Fields::Exponent(word);
  const uint32_t rest = Fields::Rest(word);
  const uint32_t mantissa =
      (rest & Fields::kMantissa) + (exponent == 0 ? 0 : Fields::kMantissa + 1);
  const double magnitude = std::ldexp(mantissa, std::max(exponent, 1) - kBias - kMantissaBits);
  return rest >> kMantissaBits != 0 ? -magnitude : magnitude;
}

// The numbers of an extent.
inline std::vector<double> ValuesOf(DType dtype, std::span<const std::byte> raw) {
  std::vector<double> values(raw.size() / static_cast<size_t>(SizeOf(dtype)));
  WithFields(dtype, [&](auto fields) {
    using Fields = decltype(fields);
    for (size_t i = 0; i < values.size(); ++i) {
      typename Fields::Word word;
      std::memcpy(&word, raw.data() + i * sizeof(word), sizeof(word));
      values[i] = ValueOf<Fields>(word);
    }
  });
  return values;
}

// As the KV of a model: each channel has a scale of its own, and a few have a large one.
inline std::vector<std::byte> LikeKv(const ExtentShape& shape, uint64_t seed) {
  std::mt19937_64 scales(7);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scale(static_cast<size_t>(2 * shape.channels()));
  for (float& one : scale) one = std::exp(normal(scales)) * (scales() % 20 == 0 ? 12.0f : 1.0f);
  std::vector<std::byte> raw;
  WithFields(shape.dtype, [&](auto fields) {
    using Fields = decltype(fields);
    for (size_t head = 0; head < scale.size(); head += static_cast<size_t>(shape.head_dim)) {
      for (int32_t i = 0; i < shape.tokens * shape.head_dim; ++i) {
        const float value = normal(random) * scale[head + static_cast<size_t>(i % shape.head_dim)];
        const auto word = WordOf<Fields>(value);
        const auto* const bytes = reinterpret_cast<const std::byte*>(&word);
        raw.insert(raw.end(), bytes, bytes + sizeof(word));
      }
    }
  });
  return raw;
}

// Made from KV of the same kind in `num_layers` layers.
inline CodecTables TablesFor(ExtentShape shape, int32_t num_layers) {
  CodecCalibrator calibrator(shape, num_layers);
  shape.tokens = 64;
  for (int32_t layer = 0; layer < num_layers; ++layer) calibrator.Add(layer, LikeKv(shape, 1));
  return calibrator.Build();
}

}  // namespace tandem
