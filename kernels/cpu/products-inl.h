// Multiply-adds that round once, and multiply-adds of pairs of bf16. Included once per target
// (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_PRODUCTS_INL_H_
#undef TANDEM_KERNELS_CPU_PRODUCTS_INL_H_
#else
#define TANDEM_KERNELS_CPU_PRODUCTS_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One rounding on every target, so that all of them give the same bits.
template <class V>
HWY_INLINE V FusedMulAdd(V a, V b, V sum) {
#if HWY_NATIVE_FMA || !HWY_ARCH_X86
  return hn::MulAdd(a, b, sum);
#else
  const hn::DFromV<V> d;
  constexpr size_t kCount = hn::MaxLanes(hn::DFromV<V>());
  HWY_ALIGN float lanes_a[kCount], lanes_b[kCount], lanes_sum[kCount];
  hn::Store(a, d, lanes_a);
  hn::Store(b, d, lanes_b);
  hn::Store(sum, d, lanes_sum);
  for (size_t i = 0; i < kCount; ++i) {
    lanes_sum[i] = std::fma(lanes_a[i], lanes_b[i], lanes_sum[i]);
  }
  return hn::Load(d, lanes_sum);
#endif
}

// Products of words, each of which is two numbers of bf16: the first in its lower half.
struct PairProducts {
  template <class V>
  static HWY_INLINE V Even(V words) {
    const hn::RebindToUnsigned<hn::DFromV<V>> d;
    return hn::BitCast(hn::DFromV<V>(), hn::ShiftLeft<16>(hn::BitCast(d, words)));
  }
  template <class V>
  static HWY_INLINE V Odd(V words) {
    const hn::RebindToUnsigned<hn::DFromV<V>> d;
    return hn::BitCast(hn::DFromV<V>(), hn::And(hn::BitCast(d, words), hn::Set(d, 0xFFFF0000u)));
  }
  // The order of VDPBF16PS, so that processors with and without it give the same bits.
  template <class V>
  static HWY_INLINE V MulAdd(V a, V b, V sum) {
    return FusedMulAdd(Even(a), Even(b), FusedMulAdd(Odd(a), Odd(b), sum));
  }
};

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
// By one instruction of processors that have it, which no target of this version of Highway asks
// for.
struct NativePairProducts {
  template <class V>
  static HWY_INLINE V MulAdd(V a, V b, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
};
#endif

// The bf16 nearest to a number, ties to even, in the upper half of its lane; the lower half is of
// no meaning. NaN stays NaN.
template <class V>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<hn::DFromV<V>>> RoundedHigh(V values) {
  const hn::RebindToUnsigned<hn::DFromV<V>> d;
  const auto bits = hn::BitCast(d, values);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(d, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(values)), quiet, rounded);
}

// A vector of words of the rounded numbers at `numbers`, two for each lane.
template <class D>
HWY_INLINE hn::Vec<D> RoundToWords(D d, const float* numbers) {
  const hn::RebindToUnsigned<D> du;
  hn::Vec<D> even, odd;
  hn::LoadInterleaved2(d, numbers, even, odd);
  const auto high = hn::And(RoundedHigh(odd), hn::Set(du, 0xFFFF0000u));
  return hn::BitCast(d, hn::Or(hn::ShiftRight<16>(RoundedHigh(even)), high));
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_PRODUCTS_INL_H_
