// Converts words of f32, f16 and bf16 to floats and back. Included once per target (Highway's
// foreach_target). It works on integers instead of using the conversions of the target, not all of
// which round to the nearest, and some of which flush small numbers to zero.
#if defined(TANDEM_KVSTORE_CODEC_FLOAT_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KVSTORE_CODEC_FLOAT_WORDS_INL_H_
#undef TANDEM_KVSTORE_CODEC_FLOAT_WORDS_INL_H_
#else
#define TANDEM_KVSTORE_CODEC_FLOAT_WORDS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/half_scale.h"
#include "hwy/highway.h"
#include "kvstore/codec/float_fields.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The conversions of one float type. Load(d, at) reads as many words as `d` has lanes; Store(v, d,
// at) rounds to nearest even.
template <class Fields>
struct FloatWords;

template <>
struct FloatWords<F32Fields> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* at) {
    return hn::LoadU(d, reinterpret_cast<const float*>(at));
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, std::byte* at) {
    hn::StoreU(v, d, reinterpret_cast<float*>(at));
  }
};

template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> LoadHalfWords(D, const std::byte* at) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  return hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(at)));
}
template <class D>
HWY_INLINE void StoreHalfWords(hn::Vec<hn::RebindToUnsigned<D>> words, D, std::byte* at) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, words), d16, reinterpret_cast<uint16_t*>(at));
}

// Drops the lowest kBits, rounding to nearest even.
template <int kBits, class DU>
HWY_INLINE hn::Vec<DU> RoundedOff(DU du, hn::Vec<DU> bits) {
  const auto odd = hn::And(hn::ShiftRight<kBits>(bits), hn::Set(du, 1u));
  const auto half = hn::Add(odd, hn::Set(du, (1u << (kBits - 1)) - 1));
  return hn::ShiftRight<kBits>(hn::Add(bits, half));
}

template <>
struct FloatWords<BF16Fields> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* at) {
    return hn::BitCast(d, hn::ShiftLeft<16>(LoadHalfWords(d, at)));
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, std::byte* at) {
    const hn::RebindToUnsigned<D> du;
    StoreHalfWords(RoundedOff<16>(du, hn::BitCast(du, v)), d, at);
  }
};

template <>
struct FloatWords<F16Fields> {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* at) {
    const hn::RebindToUnsigned<D> du;
    const auto words = LoadHalfWords(d, at);
    const auto sign = hn::ShiftLeft<16>(hn::And(words, hn::Set(du, 0x8000u)));
    const auto rest = hn::ShiftLeft<13>(hn::And(words, hn::Set(du, 0x7fffu)));
    // The factor 2^112 makes up for the difference between the exponent biases of f16 and f32; with
    // it subnormal numbers become right, too.
    const auto value = hn::Mul(hn::BitCast(d, rest), hn::Set(d, 0x1p112f));
    const auto beyond = hn::VecFromMask(d, hn::Ge(value, hn::Set(d, 65536.0f)));
    const auto infinity = hn::And(hn::BitCast(du, beyond), hn::Set(du, 0x7f800000u));
    return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du, value), infinity), sign));
  }
  // A value beyond the largest f16 becomes the largest f16: it was finite, and only the error of
  // rounding KV has moved it there.
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, std::byte* at) {
    const hn::RebindToUnsigned<D> du;
    const auto magnitude = hn::Min(hn::Abs(v), hn::Set(d, 65504.0f));
    const auto bits = hn::BitCast(du, magnitude);
    const auto normal = RoundedOff<13>(du, hn::Sub(bits, hn::Set(du, kHalfBiasBits)));
    // Floats from 0.5 on have steps of 2^-24, as subnormal f16 have, so adding 0.5 to a small value
    // rounds it to such a step.
    const auto half = hn::Set(d, 0.5f);
    const auto small = hn::Sub(hn::BitCast(du, hn::Add(magnitude, half)), hn::BitCast(du, half));
    const auto is_small =
        hn::BitCast(du, hn::VecFromMask(d, hn::Lt(magnitude, hn::Set(d, 0x1p-14f))));
    const auto rest = hn::Or(hn::And(is_small, small), hn::AndNot(is_small, normal));
    const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)), hn::Set(du, 0x8000u));
    StoreHalfWords(hn::Or(rest, sign), d, at);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KVSTORE_CODEC_FLOAT_WORDS_INL_H_
