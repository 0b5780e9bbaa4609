// Rows of a pool whose type is quantised (base/kv_row.h): rounded when they are written, and taken
// apart again for attention. Included once per target (Highway's foreach_target). Every target
// writes the same bytes.
#if defined(TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
#undef TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
#else
#define TANDEM_KERNELS_CPU_QUANTISED_ROW_INL_H_
#endif

#include <array>
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

inline constexpr size_t kGroupChannels = kKvGroupChannels;
using ChannelGroup = hadamard::GroupFloats<kGroupChannels>;

// The f16 that is stored as the scale of a group where no finite scale fits.
inline constexpr uint16_t kHalfNaN = 0x7e00;

template <int kBits>
struct Codes {
  static constexpr size_t kBytes = kGroupChannels / 8 * kBits;
  static constexpr uint8_t kZero = uint8_t{1} << (kBits - 1);  // the code of the integer 0
};

// Calls body(bits) with the number of bits as a compile-time constant.
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

// The codes of a group are stored in parts of 8, 4, 2 or 1 bits of each code. Calls part(p, shift,
// offset), all constants, for each part: its p bits begin with bit `shift` of the code, and it lies
// `offset` bytes behind the beginning of the group.
template <int kBits, class Part>
HWY_INLINE void ForEachPart(const Part& part) {
  const auto one = [&](auto size) HWY_ATTR {
    constexpr int kPart = decltype(size)::value;
    if constexpr ((kBits & kPart) != 0) {
      constexpr int kLarger = kBits / (2 * kPart) * (2 * kPart);  // bits in the parts before
      part(std::integral_constant<int, kPart>(), std::integral_constant<int, kLarger>(),
           std::integral_constant<size_t, size_t{8} * kLarger>());
    }
  };
  one(std::integral_constant<int, 8>());
  one(std::integral_constant<int, 4>());
  one(std::integral_constant<int, 2>());
  one(std::integral_constant<int, 1>());
}

#if HWY_TARGET == HWY_SCALAR

template <int kBits>
HWY_INLINE void UnpackGroup(const uint8_t* packed, int8_t* codes) {
  for (size_t i = 0; i < kGroupChannels; ++i) {
    uint32_t code = 0;
    ForEachPart<kBits>([&](auto part, auto shift, auto offset) {
      constexpr size_t kPeriod = size_t{8} * part;
      const uint32_t bits = packed[offset + i % kPeriod] >> i / kPeriod * part;
      code |= (bits & ((1u << part) - 1)) << shift;
    });
    codes[i] = static_cast<int8_t>(static_cast<int>(code) - Codes<kBits>::kZero);
  }
}

#else

using CodeTag = hn::CappedTag<uint8_t, kGroupChannels>;
inline constexpr size_t kCodeLanes = hn::MaxLanes(CodeTag());

// For a part of one bit per code: the bit of its byte that belongs to channel i.
inline constexpr auto kBitOfChannel = [] {
  std::array<uint8_t, kGroupChannels> bits{};
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint8_t>(1 << i / 8);
  return bits;
}();

// Loads one part of the codes of channels from kFirst on, as many as D has lanes, into the lowest
// bits.
template <int kPart, size_t kFirst, class D>
HWY_INLINE hn::Vec<D> LoadPart(D d, const uint8_t* part) {
  constexpr size_t kPeriod = size_t{8} * kPart;
  if constexpr (kPart == 1) {
    uint64_t mask;
    std::memcpy(&mask, part, sizeof(mask));
    const auto bits = hn::BitCast(d, hn::Set(hn::Repartition<uint64_t, D>(), mask));
    const auto own = hn::LoadU(d, kBitOfChannel.data() + kFirst);
    return hn::IfThenElseZero(hn::Eq(hn::And(bits, own), own), hn::Set(d, uint8_t{1}));
  } else if constexpr (hn::MaxLanes(D()) <= kPeriod) {
    const auto bits = hn::LoadU(d, part + kFirst % kPeriod);
    if constexpr (kPart == 8) return bits;
    const auto low = hn::Set(d, static_cast<uint8_t>((1 << kPart) - 1));
    return hn::And(hn::ShiftRight<kFirst / kPeriod * kPart>(bits), low);
  } else {
    const hn::Half<D> half;
    constexpr size_t kSecond = kFirst + hn::MaxLanes(D()) / 2;
    return hn::Combine(d, LoadPart<kPart, kSecond>(half, part),
                       LoadPart<kPart, kFirst>(half, part));
  }
}

// Unpacks the codes of a group to signed integers.
template <int kBits>
HWY_INLINE void UnpackGroup(const uint8_t* HWY_RESTRICT packed, int8_t* HWY_RESTRICT codes) {
  hadamard::Unrolled<kGroupChannels / kCodeLanes>([&](auto chunk) HWY_ATTR {
    const CodeTag d;
    const hn::RebindToSigned<CodeTag> di;
    constexpr size_t kFirst = chunk * kCodeLanes;
    auto code = hn::Zero(d);
    ForEachPart<kBits>([&](auto part, auto shift, auto offset) HWY_ATTR {
      const auto bits = LoadPart<part, kFirst>(d, packed + offset);
      code = hn::Or(code, hn::ShiftLeft<shift>(bits));
    });
    hn::StoreU(hn::BitCast(di, hn::Sub(code, hn::Set(d, Codes<kBits>::kZero))), di, codes + kFirst);
  });
}

#endif  // HWY_TARGET == HWY_SCALAR

// Packs the codes of a group, as UnpackGroup reads them; they are below 2^kBits.
template <int kBits>
HWY_INLINE void PackGroup(const uint8_t* HWY_RESTRICT codes, uint8_t* HWY_RESTRICT packed) {
  ForEachPart<kBits>([&](auto part, auto shift, auto offset) HWY_ATTR {
    constexpr size_t kPeriod = size_t{8} * part;
    for (size_t i = 0; i < kPeriod; ++i) {
      uint32_t byte = 0;
      for (size_t j = 0; j < 8 / part; ++j) {
        byte |= (codes[i + j * kPeriod] >> shift & ((1u << part) - 1)) << j * part;
      }
      packed[offset + i] = static_cast<uint8_t>(byte);
    }
  });
}

// The scale of a packed group; NaN where it has none.
HWY_INLINE float ScaleOf(const uint8_t* packed, size_t code_bytes) {
  uint16_t half;
  std::memcpy(&half, packed + code_bytes, sizeof(half));
  return half < kExactGroup ? FloatOfHalf(half) : std::bit_cast<float>(0x7fc00000u);
}

// The Hadamard transform of each group of n floats in place, without the factor that makes it a
// rotation.
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

// Quantises a group; `channels` are transformed, but not yet multiplied by kMixNorm.
template <int kBits>
HWY_INLINE void QuantiseGroup(const ChannelGroup& channels, uint8_t* packed) {
  constexpr size_t kOfVector = ChannelGroup::kOfVector;
  const typename ChannelGroup::Tag d;
  const hn::Rebind<uint8_t, typename ChannelGroup::Tag> d8;
  constexpr float kMostCode = Codes<kBits>::kZero - 1;
  const uint16_t scale = HalfAtLeast(hadamard::MostOf(channels) * kMixNorm / kMostCode);
  const bool is_number = scale != kExactGroup;
  const auto factor = hn::Set(d, is_number && scale != 0 ? kMixNorm / FloatOfHalf(scale) : 0.0f);
  uint8_t codes[kGroupChannels];
  for (size_t i = 0; i < ChannelGroup::kVectors; ++i) {
    const auto rounded = hadamard::RoundedBits(hn::Mul(channels.at[i], factor));
    hn::StoreU(hn::TruncateTo(d8, rounded), d8, codes + i * kOfVector);
  }
  for (uint8_t& code : codes)
    code = static_cast<uint8_t>(is_number ? code + Codes<kBits>::kZero : 0);
  PackGroup<kBits>(codes, packed);
  const uint16_t stored = is_number ? scale : kHalfNaN;
  std::memcpy(packed + Codes<kBits>::kBytes, &stored, sizeof(stored));
}

// Quantises the n channels of a row, each group after its Hadamard transform.
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

// The first byte of a quantised row in the pool; a type of its own, for overloads.
struct QuantisedRow {
  uint8_t byte;
};

// The integer of one channel, as TransposeKeys reads it.
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
