// Rows of a pool whose type is quantised (base/kv_row.h): rounded when they are written, and taken apart
// again for attention. Included once per target (Highway's foreach_target). Every target writes the same
// bytes.
#if defined(TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
#undef TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
#else
#define TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half_scale.h"
#include "base/kv_row.h"
#include "base/simd/hadamard-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

namespace hadamard = tandem::simd::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "masks are stored as they lie in memory");

inline constexpr size_t kGroupChannels = kKvGroupChannels;
using ChannelGroup = hadamard::GroupFloats<kGroupChannels>;

// Of an f16: what a group has as its scale that no scale fits.
inline constexpr uint16_t kHalfNaN = 0x7e00;

// The integers of a group lie as whole bytes, or as halves of bytes where there are at least four bits, and
// the bits from kFirstMask on as masks behind them.
template <int kBits>
struct CodeParts {
  static constexpr bool kBytes = kBits == 8;
  static constexpr bool kHalves = kBits >= 4 && !kBytes;
  static constexpr int kFirstMask = kBytes ? kBits : kHalves ? 4 : 0;
  static constexpr size_t kMasksAt = kHalves ? kGroupChannels / 2 : 0;
  static constexpr size_t kCodeBytes = kGroupChannels / 8 * kBits;
  static constexpr uint8_t kZero = uint8_t{1} << (kBits - 1);  // what stands for the integer 0
};

// Calls body(bits) with the bits as a constant.
template <class Body>
HWY_INLINE void WithBits(int32_t bits, const Body& body) {
  switch (bits) {
    case 8:
      return body(std::integral_constant<int, 8>());
    case 6:
      return body(std::integral_constant<int, 6>());
    case 5:
      return body(std::integral_constant<int, 5>());
    case 4:
      return body(std::integral_constant<int, 4>());
    default:
      return body(std::integral_constant<int, 3>());
  }
}

#if HWY_TARGET == HWY_SCALAR

template <int kBits>
HWY_INLINE void UnpackGroup(const uint8_t* packed, int8_t* codes) {
  using Parts = CodeParts<kBits>;
  for (size_t i = 0; i < kGroupChannels; ++i) {
    uint32_t code = Parts::kBytes ? packed[i] : 0;
    if (Parts::kHalves) code = packed[i % 32] >> (i < 32 ? 0 : 4) & 15u;
    const uint8_t* mask = packed + Parts::kMasksAt + i / 8;
    for (int bit = Parts::kFirstMask; bit < kBits; ++bit, mask += 8) {
      code |= (*mask >> i % 8 & 1u) << bit;
    }
    codes[i] = static_cast<int8_t>(static_cast<int>(code) - Parts::kZero);
  }
}

HWY_INLINE uint64_t MaskOfBit(const uint8_t* codes, int bit) {
  uint64_t mask = 0;
  for (size_t i = 0; i < kGroupChannels; ++i) mask |= uint64_t{codes[i] >> bit & 1u} << i;
  return mask;
}

#else

using CodeTag = hn::CappedTag<uint8_t, kGroupChannels>;
inline constexpr size_t kCodeLanes = hn::MaxLanes(CodeTag());

// A mask, and behind it what Highway may read beyond a part of it.
struct MaskBytes {
  uint8_t at[sizeof(uint64_t) + HWY_MAX_BYTES];
};

// The low four bits of the channels from `first` on.
HWY_INLINE hn::Vec<CodeTag> LoadHalves(const uint8_t* packed, size_t first) {
  const CodeTag d;
  const auto low_bits = hn::Set(d, uint8_t{15});
  if constexpr (kCodeLanes == kGroupChannels) {
    const hn::Half<CodeTag> half;
    const auto both = hn::LoadU(half, packed);
    return hn::And(hn::Combine(d, hn::ShiftRight<4>(both), both), low_bits);
  } else {
    const auto both = hn::LoadU(d, packed + first % 32);
    return first < 32 ? hn::And(both, low_bits) : hn::ShiftRight<4>(both);
  }
}

// The integers of a group.
template <int kBits>
HWY_INLINE void UnpackGroup(const uint8_t* HWY_RESTRICT packed, int8_t* HWY_RESTRICT codes) {
  using Parts = CodeParts<kBits>;
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  for (size_t i = 0; i < kGroupChannels; i += kCodeLanes) {
    auto code = hn::Zero(d);
    if constexpr (Parts::kBytes) code = hn::LoadU(d, packed + i);
    if constexpr (Parts::kHalves) code = LoadHalves(packed, i);
    HWY_UNROLL(4)
    for (int bit = Parts::kFirstMask; bit < kBits; ++bit) {
      const uint8_t* mask = packed + Parts::kMasksAt + 8 * (bit - Parts::kFirstMask);
      MaskBytes bytes;
      std::memcpy(bytes.at, mask + i / 8, kCodeLanes / 8);
      const auto value = hn::Set(d, static_cast<uint8_t>(1 << bit));
      code = hn::Or(code, hn::IfThenElseZero(hn::LoadMaskBits(d, bytes.at), value));
    }
    hn::StoreU(hn::BitCast(di, hn::Sub(code, hn::Set(d, Parts::kZero))), di, codes + i);
  }
}

HWY_INLINE uint64_t MaskOfBit(const uint8_t* codes, int bit) {
  const CodeTag d;
  const auto one = hn::Set(d, static_cast<uint8_t>(1 << bit));
  uint64_t mask = 0;
  for (size_t i = 0; i < kGroupChannels; i += kCodeLanes) {
    MaskBytes bytes;
    hn::StoreMaskBits(d, hn::Eq(hn::And(hn::LoadU(d, codes + i), one), one), bytes.at);
    uint64_t part = 0;
    std::memcpy(&part, bytes.at, kCodeLanes / 8);
    mask |= part << i;
  }
  return mask;
}

#endif  // HWY_TARGET == HWY_SCALAR

// The other way round. `codes` are below 2^kBits.
template <int kBits>
HWY_INLINE void PackGroup(const uint8_t* HWY_RESTRICT codes, uint8_t* HWY_RESTRICT packed) {
  using Parts = CodeParts<kBits>;
  if constexpr (Parts::kBytes) std::memcpy(packed, codes, kGroupChannels);
  if constexpr (Parts::kHalves) {
    for (size_t i = 0; i < kGroupChannels / 2; ++i) {
      packed[i] = static_cast<uint8_t>((codes[i] & 15u) | codes[i + 32] << 4);
    }
  }
  uint8_t* masks = packed + Parts::kMasksAt;
  for (int bit = Parts::kFirstMask; bit < kBits; ++bit, masks += 8) {
    const uint64_t mask = MaskOfBit(codes, bit);
    std::memcpy(masks, &mask, sizeof(mask));
  }
}

// NaN where the group has no scale.
HWY_INLINE float ScaleOf(const uint8_t* packed, size_t code_bytes) {
  uint16_t half;
  std::memcpy(&half, packed + code_bytes, sizeof(half));
  return half < kExactGroup ? FloatOfHalf(half) : std::bit_cast<float>(0x7fc00000u);
}

// The transform of each group of n floats in place, without the factor that makes it a rotation.
HWY_INLINE void MixGroups(float* x, size_t n) {
  constexpr size_t kOfVector = ChannelGroup::kOfVector;
  const typename ChannelGroup::Tag d;
  for (size_t at = 0; at < n; at += kGroupChannels) {
    ChannelGroup group;
    for (size_t i = 0; i < ChannelGroup::kVectors; ++i) {
      group.at[i] = hn::LoadU(d, x + at + i * kOfVector);
    }
    hadamard::Rotate(group);
    for (size_t i = 0; i < ChannelGroup::kVectors; ++i) {
      hn::StoreU(group.at[i], d, x + at + i * kOfVector);
    }
  }
}
inline constexpr float kMixNorm = hadamard::kRotationNorm<kGroupChannels>;
static_assert(kMixNorm == 0.125f, "as StoredUnit says");

// The bytes of `channels`, transformed but for kMixNorm.
template <int kBits>
HWY_INLINE void QuantiseGroup(const ChannelGroup& channels, uint8_t* packed) {
  using Parts = CodeParts<kBits>;
  constexpr size_t kOfVector = ChannelGroup::kOfVector;
  const typename ChannelGroup::Tag d;
  const hn::Rebind<uint8_t, typename ChannelGroup::Tag> d8;
  constexpr float kMostCode = Parts::kZero - 1;
  const uint16_t scale = HalfAtLeast(hadamard::MostOf(channels) * kMixNorm / kMostCode);
  const bool is_number = scale != kExactGroup;
  const auto factor = hn::Set(d, is_number && scale != 0 ? kMixNorm / FloatOfHalf(scale) : 0.0f);
  uint8_t codes[kGroupChannels];
  for (size_t i = 0; i < ChannelGroup::kVectors; ++i) {
    const auto rounded = hadamard::RoundedBits(hn::Mul(channels.at[i], factor));
    hn::StoreU(hn::TruncateTo(d8, rounded), d8, codes + i * kOfVector);
  }
  for (uint8_t& code : codes) code = static_cast<uint8_t>(is_number ? code + Parts::kZero : 0);
  PackGroup<kBits>(codes, packed);
  const uint16_t stored = is_number ? scale : kHalfNaN;
  std::memcpy(packed + Parts::kCodeBytes, &stored, sizeof(stored));
}

// Rounds the n channels of a row.
HWY_INLINE void QuantiseFloats(const float* HWY_RESTRICT x, size_t n, int32_t bits,
                               std::byte* HWY_RESTRICT out) {
  WithBits(bits, [&](auto constant) HWY_ATTR {
    constexpr int kBits = decltype(constant)::value;
    const typename ChannelGroup::Tag d;
    auto* packed = reinterpret_cast<uint8_t*>(out);
    for (size_t at = 0; at < n; at += kGroupChannels, packed += KvGroupBytes(kBits)) {
      ChannelGroup channels;
      for (size_t i = 0; i < ChannelGroup::kVectors; ++i) {
        channels.at[i] = hn::LoadU(d, x + at + i * ChannelGroup::kOfVector);
      }
      hadamard::Rotate(channels);
      QuantiseGroup<kBits>(channels, packed);
    }
  });
}

// What a row in the pool begins with.
struct QuantisedRow {
  uint8_t byte;
};

// One integer, as TransposeKeys reads them.
struct Code {
  int8_t value;
};

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const Code* p) {
  const hn::Rebind<int8_t, D> d8;
  const hn::RebindToSigned<D> di;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p))));
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
