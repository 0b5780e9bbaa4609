// Products of bf16 weights and of activations that are rounded to bf16 as well. Included once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_PAIRS_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_PAIRS_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_PAIRS_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using U32 = hn::RebindToUnsigned<F32>;

// Weights of bf16 whose activations are rounded to bf16 as well: a word of either is two inputs.
// Words lie as floats of f32 do.
struct BF16Pairs : F32Weights {
  static constexpr int64_t kInputsPerWord = 2;
  static HWY_INLINE V Even(V words) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::BitCast(U32(), words)));
  }
  static HWY_INLINE V Odd(V words) {
    return hn::BitCast(F32(), hn::And(hn::BitCast(U32(), words), hn::Set(U32(), 0xFFFF0000u)));
  }
  // The order of VDPBF16PS, so that processors with and without it give the same bits.
  static HWY_INLINE V MulAdd(V x, V weights, V sum) {
    return FusedMulAdd(Even(x), Even(weights), FusedMulAdd(Odd(x), Odd(weights), sum));
  }
};

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
// By one instruction of processors that have it, which no target of this version of Highway asks for.
struct NativeBF16Pairs : BF16Pairs {
  static HWY_INLINE V MulAdd(V x, V weights, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(x.raw));
    return sum;
  }
};
#endif

// The bf16 nearest to a number, ties to even, in the upper half of its lane; the lower half is of no meaning. NaN
// stays NaN.
HWY_INLINE hn::Vec<U32> RoundedHigh(V values) {
  const auto bits = hn::BitCast(U32(), values);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(U32(), 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(U32(), 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(U32(), hn::IsNaN(values)), quiet, rounded);
}

// How activations become words, a vector of them or one of which `left` inputs are there.
struct FloatWords {
  static constexpr int64_t kInputs = 1;  // of a word
  static HWY_INLINE V Load(const float* inputs) { return hn::LoadU(F32(), inputs); }
  static HWY_INLINE float LoadOne(const float* inputs, int64_t /*left*/) { return *inputs; }
};

// The first input of a pair is in the lower half. A pair of one input has a zero.
struct RoundedPairs {
  static constexpr int64_t kInputs = 2;
  static HWY_INLINE V Load(const float* inputs) {
    V even, odd;
    hn::LoadInterleaved2(F32(), inputs, even, odd);
    const auto high = hn::And(RoundedHigh(odd), hn::Set(U32(), 0xFFFF0000u));
    return hn::BitCast(F32(), hn::Or(hn::ShiftRight<16>(RoundedHigh(even)), high));
  }
  static HWY_INLINE float LoadOne(const float* inputs, int64_t left) {
    float pair[2 * kLanes] = {};
    std::copy_n(inputs, std::min(left, kInputs), pair);
    return hn::GetLane(Load(pair));
  }
};

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_PAIRS_INL_H_
