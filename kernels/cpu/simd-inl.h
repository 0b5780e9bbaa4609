// Helpers that the vectorised ops share. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_SIMD_INL_H_
#undef TANDEM_KERNELS_CPU_SIMD_INL_H_
#else
#define TANDEM_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using I32Tag = hn::RebindToSigned<F32Tag>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using F32 = hn::Vec<F32Tag>;

inline constexpr size_t kLanes = hn::MaxLanes(F32Tag());

// f16 to f32. On x86 without F16C Highway's own widening takes infinities and NaN for numbers.
template <class D>
HWY_INLINE hn::Vec<D> WidenHalves(D d, hn::Vec<hn::Rebind<hwy::float16_t, D>> halves) {
  const auto wide = hn::PromoteTo(d, halves);
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::BitCast(hn::Rebind<uint16_t, D>(), halves));
  const auto exponent = hn::Set(du, 0x7c00);
  const auto special = hn::Eq(hn::And(bits, exponent), exponent);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const auto fraction = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x3ff)));
  const auto right = hn::Or(hn::Or(sign, fraction), hn::Set(du, 0x7f800000));
  return hn::BitCast(d, hn::IfThenElse(special, right, hn::BitCast(du, wide)));
#else
  return wide;
#endif
}

// Loads one vector of a stored type, widened to floats exactly.
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const hwy::float16_t* p) {
  return WidenHalves(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const hwy::bfloat16_t* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), p));
}

// An e4m3 as it is stored. LoadWide widens it by way of f16, whose exponent bias is 8 larger: so a
// value is exactly StoredUnit(dtype) times what LoadWide gives.
struct F8E4M3 {
  uint8_t bits;
};
inline constexpr float kF8Unit = 256;

// What the numbers of LoadWide are to be multiplied by. For quantised types this makes their
// Hadamard transform a rotation.
inline float StoredUnit(DType dtype) {
  if (IsQuantisedKv(dtype)) return 0.125f;
  return dtype == DType::kF8E4M3 ? kF8Unit : 1.0f;
}

// Converts e4m3 bytes, sign-extended to 16 bits, to f16 bits; NaN stays NaN.
template <class V>
HWY_INLINE V HalvesOfF8(V bytes) {
  const hn::DFromV<V> d;
  const V halves = hn::And(hn::ShiftLeft<7>(bytes), hn::Set(d, static_cast<int16_t>(0xBFFF)));
  const V magnitude = hn::And(halves, hn::Set(d, static_cast<int16_t>(0x3FFF)));
  const auto nan = hn::Eq(magnitude, hn::Set(d, static_cast<int16_t>(0x3F80)));
  return hn::IfThenElse(nan, hn::Set(d, static_cast<int16_t>(0x7E00)), halves);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const F8E4M3* p) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int16_t, D> d16;
  const auto bytes = hn::LoadU(d8, reinterpret_cast<const int8_t*>(p));
  const auto halves = HalvesOfF8(hn::PromoteTo(d16, bytes));
  return WidenHalves(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), halves));
}

// Sums over a row run in 16 partial sums, element i in sum i % 16, which are then folded in halves:
// the same additions in the same order for every vector width.
inline constexpr size_t kSumLanes = 16;
inline constexpr size_t kSumVectors = kSumLanes / kLanes;
static_assert(kSumLanes % kLanes == 0, "a vector holds a divisor of 16 floats");

// Folds 16 partial sums to one, in halves.
HWY_INLINE float FoldSum(const float* partial) {
  float sums[kSumLanes / 2];
  for (size_t i = 0; i < 8; ++i) sums[i] = partial[i] + partial[i + 8];
  for (size_t width = 4; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

// The sum over x by calls of add(v, x): partial sum vector v takes in the next vector of elements
// x, with zeros after `n`.
template <class Add>
HWY_INLINE float SumInOrder(const float* HWY_RESTRICT x, size_t n, Add add) {
  const F32Tag d;
  F32 sums[kSumVectors];
  for (size_t v = 0; v < kSumVectors; ++v) sums[v] = hn::Zero(d);
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (size_t v = 0; v < kSumVectors; ++v) {
      sums[v] = add(sums[v], hn::LoadU(d, x + i + v * kLanes));
    }
  }
  HWY_ALIGN float buffer[kSumLanes] = {};
  if (i < n) {
    for (size_t j = i; j < n; ++j) buffer[j - i] = x[j];
    for (size_t v = 0; v < kSumVectors; ++v) {
      sums[v] = add(sums[v], hn::Load(d, buffer + v * kLanes));
    }
  }
  for (size_t v = 0; v < kSumVectors; ++v) hn::Store(sums[v], d, buffer + v * kLanes);
  return FoldSum(buffer);
}

HWY_INLINE float SumOfSquares(const float* HWY_RESTRICT x, size_t n) {
  return SumInOrder(x, n, [](F32 sum, F32 v) HWY_ATTR { return hn::MulAdd(v, v, sum); });
}

// Added to x, this number, whose last place is 1, splits x into whole + part, part in [-0.5, 0.5]:
// the sum's low bits are `whole`. For |x| < 2^22.
inline constexpr float kRounder = 0x1.8p23f;

// 2^(rounded + part) for rounded = kRounder + whole, whole in [-126, 127]; relative error below
// 2e-7. The polynomial is the minimax one of degree 5 with 2^0 = 1 exactly.
HWY_INLINE F32 Exp2OfParts(F32 rounded, F32 part) {
  const F32Tag d;
  const I32Tag di;
  F32 y = hn::Set(d, 0x1.5bba14p-10f);
  y = hn::MulAdd(y, part, hn::Set(d, 0x1.3cea88p-7f));
  y = hn::MulAdd(y, part, hn::Set(d, 0x1.c6b752p-5f));
  y = hn::MulAdd(y, part, hn::Set(d, 0x1.ebf9bcp-3f));
  y = hn::MulAdd(y, part, hn::Set(d, 0x1.62e42ap-1f));
  y = hn::MulAdd(y, part, hn::Set(d, 1.0f));
  const auto exponent =
      hn::ShiftLeft<23>(hn::BitCast(di, rounded));  // the bits above `whole` are lost
  return hn::BitCast(d, hn::Add(hn::BitCast(di, y), exponent));
}

// 2^x for x <= 127; below -125 it is 0. NaN stays NaN.
HWY_INLINE F32 Exp2(F32 x) {
  const F32Tag d;
  const F32 rounder = hn::Set(d, kRounder);
  const auto tiny = hn::Lt(x, hn::Set(d, -125.0f));
  const F32 rounded = hn::Add(x, rounder);
  const F32 part = hn::Sub(x, hn::Sub(rounded, rounder));
  return hn::IfThenZeroElse(tiny, Exp2OfParts(rounded, part));
}

// e^x: an x above 87.5 counts as 87.5, and a result below 2^-125 is 0.
HWY_INLINE F32 Exp(F32 x) {
  const F32Tag d;
  const F32 rounder = hn::Set(d, kRounder);
  const F32 log2e = hn::Set(d, 0x1.715476p+0f);
  const F32 log2e_rest = hn::Set(d, 0x1.4ae0cp-26f);  // log2(e) - float(log2(e))
  x = hn::Min(x, hn::Set(d, 87.5f));
  const F32 scaled = hn::Mul(x, log2e);
  const auto tiny = hn::Lt(scaled, hn::Set(d, -125.0f));
  const F32 rounded = hn::Add(scaled, rounder);
  const F32 whole = hn::Sub(rounded, rounder);
  const F32 part = hn::MulAdd(x, log2e_rest, hn::MulSub(x, log2e, whole));
  return hn::IfThenZeroElse(tiny, Exp2OfParts(rounded, part));
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_SIMD_INL_H_
