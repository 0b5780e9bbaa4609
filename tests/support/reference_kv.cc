#include "tests/support/reference_kv.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tests/support/reference_floats.h"

namespace tandem::reference {
namespace {

constexpr size_t kGroup = kKvGroupChannels;
using Channels = std::array<float, kGroup>;

// Sums and differences of channels that lie 32 apart, then 16, and so on to neighbours: in float,
// as the bits of what is stored follow from the order.
void Transform(Channels& x) {
  for (size_t stride = kGroup / 2; stride > 0; stride /= 2) {
    for (size_t i = 0; i < kGroup; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i];
      const float b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

// The code of the least f16 that is not below `value`; that of infinity when there is none.
uint16_t LeastHalf(double value) {
  uint16_t low = 0;
  uint16_t high = 0x7c00;
  while (low < high) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    if (Load(DType::kF16, &middle, 0) >= value) {
      high = middle;
    } else {
      low = static_cast<uint16_t>(middle + 1);
    }
  }
  return low;
}

void SetBit(std::byte* bits, size_t index) { bits[index / 8] |= std::byte{1} << index % 8; }
bool BitAt(const std::byte* bits, size_t index) {
  return (bits[index / 8] >> index % 8 & std::byte{1}) != std::byte{0};
}

// The place of bit `bit` of channel `channel`, in bits from the beginning of the group.
size_t PlaceOfBit(int bits, size_t channel, int bit) {
  int before = 0;  // bits in the parts before
  for (const int part : {8, 4, 2, 1}) {
    if ((bits & part) == 0) continue;
    if (bit < before + part) {
      const auto period = static_cast<size_t>(8 * part);
      const size_t in_byte =
          channel / period * static_cast<size_t>(part) + static_cast<size_t>(bit - before);
      return (static_cast<size_t>(8 * before) + channel % period) * 8 + in_byte;
    }
    before += part;
  }
  TANDEM_CHECK(false, "a bit that no part has");
}

void StoreGroup(std::span<const float> values, int bits, std::byte* out) {
  Channels x;
  std::copy(values.begin(), values.end(), x.begin());
  Transform(x);
  const auto bytes = static_cast<size_t>(KvGroupBytes(bits));
  std::memset(out, 0, bytes);
  float most = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) most = INFINITY;
    most = std::max(most, std::fabs(value));
  }
  const int zero = 1 << (bits - 1);
  uint16_t scale = LeastHalf(most * 0.125f / static_cast<float>(zero - 1));
  const bool fits = scale < 0x7c00;
  if (!fits) scale = 0x7e00;
  std::memcpy(out + bytes - sizeof(scale), &scale, sizeof(scale));
  if (!fits) return;
  const double step = Load(DType::kF16, &scale, 0);
  const float factor = scale == 0 ? 0 : 0.125f / static_cast<float>(step);
  for (size_t i = 0; i < kGroup; ++i) {
    const int code = static_cast<int>(std::nearbyint(x[i] * factor)) + zero;
    for (int bit = 0; bit < bits; ++bit) {
      if ((code >> bit & 1) != 0) SetBit(out, PlaceOfBit(bits, i, bit));
    }
  }
}

double ScaleAt(const std::byte* group, int bits) {
  uint16_t scale;
  std::memcpy(&scale, group + KvGroupBytes(bits) - sizeof(scale), sizeof(scale));
  return Load(DType::kF16, &scale, 0);
}

}  // namespace

std::vector<double> Rotated(std::span<const double> values) {
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < kGroup; ++j) {
      const double sign = std::popcount(i % kGroup & j) % 2 == 0 ? 1 : -1;
      sum += sign * values[i / kGroup * kGroup + j];
    }
    out.push_back(sum / 8);
  }
  return out;
}

void StoreRow(const KvPoolView& pool, KvSide side, std::span<const float> values, std::byte* row) {
  const int bits = KvBits(pool.dtype, side);
  const double scale = side == KvSide::kKeys ? pool.k_scale : pool.v_scale;
  if (bits == 0) {
    for (size_t i = 0; i < values.size(); ++i) {
      Store(pool.dtype, values[i] / scale, row, static_cast<int64_t>(i));
    }
    return;
  }
  for (size_t at = 0; at < values.size(); at += kGroup, row += KvGroupBytes(bits)) {
    StoreGroup(values.subspan(at, kGroup), bits, row);
  }
}

std::vector<double> LoadRow(const KvPoolView& pool, KvSide side, const std::byte* row) {
  const int bits = KvBits(pool.dtype, side);
  const double scale = side == KvSide::kKeys ? pool.k_scale : pool.v_scale;
  std::vector<double> values;
  if (bits == 0) {
    for (int64_t i = 0; i < pool.head_dim; ++i) values.push_back(scale * Load(pool.dtype, row, i));
    return values;
  }
  for (int32_t at = 0; at < pool.head_dim; at += kKvGroupChannels, row += KvGroupBytes(bits)) {
    for (size_t i = 0; i < kGroup; ++i) {
      int code = 0;
      for (int bit = 0; bit < bits; ++bit) code |= BitAt(row, PlaceOfBit(bits, i, bit)) << bit;
      values.push_back((code - (1 << (bits - 1))) * ScaleAt(row, bits));
    }
  }
  return Rotated(values);
}

double ScaleOfGroup(const KvPoolView& pool, KvSide side, const std::byte* row, int group) {
  const int bits = KvBits(pool.dtype, side);
  return ScaleAt(row + group * KvGroupBytes(bits), bits);
}

}  // namespace tandem::reference
