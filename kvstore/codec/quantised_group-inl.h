// Quantises a group of channels to integers and back: rotate, divide by the scale of the group,
// round. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KVSTORE_CODEC_QUANTISED_GROUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KVSTORE_CODEC_QUANTISED_GROUP_INL_H_
#undef TANDEM_KVSTORE_CODEC_QUANTISED_GROUP_INL_H_
#else
#define TANDEM_KVSTORE_CODEC_QUANTISED_GROUP_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/half_scale.h"
#include "base/simd/hadamard-inl.h"
#include "hwy/highway.h"
#include "kvstore/codec/code_planes-inl.h"
#include "kvstore/codec/float_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

using simd::HWY_NAMESPACE::GroupFloats;
using simd::HWY_NAMESPACE::kRotationNorm;
using simd::HWY_NAMESPACE::MostOf;
using simd::HWY_NAMESPACE::Rotate;
using simd::HWY_NAMESPACE::RoundedBits;
using simd::HWY_NAMESPACE::Unrolled;

// The size of one vector of floats as words of an extent.
template <class Fields, size_t kLanes>
inline constexpr size_t kVectorBytes = GroupFloats<kLanes>::kOfVector *
                                       sizeof(typename Fields::Word);

template <class Fields, size_t kLanes>
HWY_INLINE GroupFloats<kLanes> Rotated(const std::byte* raw) {
  GroupFloats<kLanes> group;
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, raw](auto i) HWY_ATTR {
    const typename GroupFloats<kLanes>::Tag d;
    group.at[i] = FloatWords<Fields>::Load(d, raw + i * kVectorBytes<Fields, kLanes>);
  });
  Rotate(group);
  return group;
}

#if HWY_TARGET == HWY_SCALAR

template <size_t kLanes>
inline constexpr bool kFillsBytes = false;
template <size_t kLanes>
HWY_INLINE void StoreBytes(const GroupFloats<kLanes>&, RowBytes&) {}

#else

// Whether the codes of a group fill whole vectors of bytes. They are then put together in registers
// and stored as whole vectors: a load that is wider than the stores before it would have to wait
// for them.
template <size_t kLanes>
inline constexpr bool kFillsBytes = GroupFloats<kLanes>::kVectors >= 4;
template <size_t kLanes>
HWY_INLINE void StoreBytes(const GroupFloats<kLanes>& group, RowBytes& codes) {
  Unrolled<GroupFloats<kLanes>::kVectors / 4>([&group, &codes](auto i) HWY_ATTR {
    using Tag = typename GroupFloats<kLanes>::Tag;
    const hn::Repartition<uint16_t, Tag> d16;
    const hn::Repartition<uint8_t, Tag> d8;
    const auto words = [&group, d16](size_t at)
                           HWY_ATTR { return hn::BitCast(d16, RoundedBits(group.at[at])); };
    const auto low = hn::ConcatEven(d16, words(4 * i + 1), words(4 * i));
    const auto high = hn::ConcatEven(d16, words(4 * i + 3), words(4 * i + 2));
    hn::Store(hn::ConcatEven(d8, hn::BitCast(d8, high), hn::BitCast(d8, low)), d8,
              codes.at + 4 * i * GroupFloats<kLanes>::kOfVector);
  });
}

#endif  // HWY_TARGET == HWY_SCALAR

// Multiplies the channels of a group by `factor` and rounds them to integer codes.
template <size_t kLanes>
HWY_INLINE void RoundTo(GroupFloats<kLanes> group, float factor, RowBytes& codes) {
  using Tag = typename GroupFloats<kLanes>::Tag;
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, factor](auto i) HWY_ATTR {
    group.at[i] = hn::Mul(group.at[i], hn::Set(Tag(), factor));
  });
  if constexpr (kFillsBytes<kLanes>) {
    StoreBytes(group, codes);
  } else {
    Unrolled<GroupFloats<kLanes>::kVectors>([&group, &codes](auto i) HWY_ATTR {
      const hn::Rebind<uint8_t, Tag> d8;
      hn::StoreU(hn::TruncateTo(d8, RoundedBits(group.at[i])), d8,
                 codes.at + i * GroupFloats<kLanes>::kOfVector);
    });
  }
}

template <size_t kLanes>
HWY_INLINE GroupFloats<kLanes> FloatsOf(const RowBytes& codes, float factor) {
  GroupFloats<kLanes> group;
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, &codes, factor](auto i) HWY_ATTR {
    using Tag = typename GroupFloats<kLanes>::Tag;
    const Tag d;
    const hn::RebindToSigned<Tag> di;
    const hn::Rebind<int8_t, Tag> d8;
    const auto* const at =
        reinterpret_cast<const int8_t*>(codes.at + i * GroupFloats<kLanes>::kOfVector);
    group.at[i] =
        hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, at))), hn::Set(d, factor));
  });
  return group;
}

template <class Fields, size_t kLanes>
HWY_INLINE void StoreGroup(const GroupFloats<kLanes>& group, std::byte* raw) {
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, raw](auto i) HWY_ATTR {
    const typename GroupFloats<kLanes>::Tag d;
    FloatWords<Fields>::Store(group.at[i], d, raw + i * kVectorBytes<Fields, kLanes>);
  });
}

// Quantises a group: returns its scale and sets `ranks` to the ranks of its codes.
template <class Fields, size_t kLanes>
HWY_INLINE uint16_t Quantise(const std::byte* raw, int bits, RowBytes& ranks) {
  const GroupFloats<kLanes> group = Rotated<Fields, kLanes>(raw);
  const auto most_code = static_cast<float>((1 << (bits - 1)) - 1);
  // Divides by the largest code instead of multiplying by its inverse, so that a scale that is
  // exactly an f16 is not rounded up to the next one.
  const uint16_t scale = HalfAtLeast(MostOf(group) * kRotationNorm<kLanes> / most_code);
  if (scale == 0 || scale == kExactGroup) {
    ranks = {};
    return scale;
  }
  RoundTo(group, kRotationNorm<kLanes> / FloatOfHalf(scale), ranks);
  ZigzagOf(ranks);
  return scale;
}

template <class Fields, size_t kLanes>
HWY_INLINE void Dequantise(RowBytes& ranks, uint16_t scale, std::byte* raw) {
  CodesOf(ranks);
  GroupFloats<kLanes> group = FloatsOf<kLanes>(ranks, FloatOfHalf(scale) * kRotationNorm<kLanes>);
  Rotate(group);
  StoreGroup<Fields>(group, raw);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KVSTORE_CODEC_QUANTISED_GROUP_INL_H_
