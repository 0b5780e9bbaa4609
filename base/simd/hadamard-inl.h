// Operations on a group of channels that are rounded to integers together: the Hadamard transform,
// which spreads a channel that is much larger than the others over all of them, the largest
// magnitude, and rounding. Included once per target (Highway's foreach_target). Every target adds
// the same numbers in the same order, so that the results have the same bits.
#if defined(TANDEM_BASE_SIMD_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_BASE_SIMD_HADAMARD_INL_H_
#undef TANDEM_BASE_SIMD_HADAMARD_INL_H_
#else
#define TANDEM_BASE_SIMD_HADAMARD_INL_H_
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A group of channels in registers.
template <size_t kLanes>
struct GroupFloats {
  using Tag = hn::CappedTag<float, kLanes>;
  static constexpr size_t kOfVector = hn::MaxLanes(Tag());
  static constexpr size_t kVectors = kLanes / kOfVector;

  hn::Vec<Tag> at[kVectors];
};

// Calls `function` with the constants 0 to kCount - 1. An array that is indexed by constants stays
// in registers.
template <size_t kCount, class Function>
HWY_INLINE void Unrolled(Function function) {
  [&function]<size_t... kIndex>(std::index_sequence<kIndex...>) HWY_ATTR {
    (function(std::integral_constant<size_t, kIndex>()), ...);
  }
  (std::make_index_sequence<kCount>());
}

// The steps of the Hadamard transform between vectors: adds and subtracts vectors that are kStride
// apart, then those half as far apart, down to adjacent ones. kStride is a power of two.
template <size_t kStride, size_t kLanes>
HWY_INLINE void MixVectors(GroupFloats<kLanes>& group) {
  if constexpr (kStride > 0) {
    Unrolled<GroupFloats<kLanes>::kVectors / 2>([&group](auto i) HWY_ATTR {
      constexpr size_t kFirst = i / kStride * 2 * kStride + i % kStride;
      const auto a = group.at[kFirst];
      const auto b = group.at[kFirst + kStride];
      group.at[kFirst] = hn::Add(a, b);
      group.at[kFirst + kStride] = hn::Sub(a, b);
    });
    MixVectors<kStride / 2>(group);
  }
}

#if HWY_TARGET == HWY_SCALAR

template <size_t kStride, size_t kLanes>
HWY_INLINE void MixWithin(GroupFloats<kLanes>&) {}

#else

template <size_t kStride, class D>
HWY_INLINE hn::Vec<D> Swapped(D d, hn::Vec<D> v) {
  if constexpr (kStride == 1) return hn::Reverse2(d, v);
  if constexpr (kStride == 2) return hn::Shuffle1032(v);
  if constexpr (kStride > 2 && 2 * kStride == hn::MaxLanes(D())) {
    return hn::ConcatLowerUpper(d, v, v);
  }
  if constexpr (kStride > 2 && 2 * kStride < hn::MaxLanes(D())) return hn::SwapAdjacentBlocks(v);
}

// The sign bit of a float for the lanes whose index has the bit kStride; 0 for the other lanes.
template <size_t kStride>
inline constexpr auto kSigns = [] {
  std::array<uint32_t, 16> signs{};
  for (size_t i = 0; i < signs.size(); ++i) signs[i] = (i & kStride) != 0 ? uint32_t{1} << 31 : 0;
  return signs;
}();

// The steps of the Hadamard transform within vectors: of a pair of lanes a, b that are kStride
// apart, the first becomes b + a and the second a + -b. Then the same for half of kStride, down to
// 1.
template <size_t kStride, size_t kLanes>
HWY_INLINE void MixWithin(GroupFloats<kLanes>& group) {
  if constexpr (kStride > 0) {
    using Tag = typename GroupFloats<kLanes>::Tag;
    const Tag d;
    const hn::RebindToUnsigned<Tag> du;
    const auto signs = hn::BitCast(d, hn::LoadU(du, kSigns<kStride>.data()));
    Unrolled<GroupFloats<kLanes>::kVectors>([&group, d, signs](auto i) HWY_ATTR {
      const auto v = group.at[i];
      group.at[i] = hn::Add(Swapped<kStride>(d, v), hn::Xor(v, signs));
    });
    MixWithin<kStride / 2>(group);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// The Hadamard transform of a group, without the factor kRotationNorm that makes it a rotation and
// its own inverse.
template <size_t kLanes>
HWY_INLINE void Rotate(GroupFloats<kLanes>& group) {
  MixVectors<GroupFloats<kLanes>::kVectors / 2>(group);
  MixWithin<GroupFloats<kLanes>::kOfVector / 2>(group);
}

// 1 / sqrt(kLanes): the factor that makes the Hadamard transform of kLanes channels a rotation.
template <size_t kLanes>
inline constexpr float kRotationNorm = (std::countr_zero(kLanes) % 2 == 0 ? 1.0f : 0.70710678f) /
                                       static_cast<float>(1u << std::countr_zero(kLanes) / 2);

// The largest magnitude in a group after the Hadamard transform. Magnitudes are compared as
// integers: so infinity is above all numbers, and NaN above infinity. An infinity or NaN among the
// channels is one in each of their sums.
template <size_t kLanes>
HWY_INLINE float MostOf(const GroupFloats<kLanes>& group) {
  using Tag = typename GroupFloats<kLanes>::Tag;
  const hn::RebindToSigned<Tag> di;
  auto most = hn::Zero(di);
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, &most, di](auto i) HWY_ATTR {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(group.at[i])));
  });
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

// The nearest integers, even ones in a tie, in the lowest bits of each lane: a float as large as
// the one that is added has steps of 1.
template <class V>
HWY_INLINE auto RoundedBits(V v) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  return hn::BitCast(du, hn::Add(v, hn::Set(d, 0x1.8p23f)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::simd
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_BASE_SIMD_HADAMARD_INL_H_
