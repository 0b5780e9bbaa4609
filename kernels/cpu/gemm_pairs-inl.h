// Products of bf16 weights and of activations that are rounded to bf16 as well. Included once per
// vector target.

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
#include "kernels/cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using U32 = hn::RebindToUnsigned<F32>;

// Weights of bf16 whose activations are rounded to bf16 as well: a word of either is two inputs.
// Words lie as floats of f32 do.
struct BF16Pairs : F32Weights {
  static constexpr int64_t kInputsPerWord = 2;
  static HWY_INLINE V MulAdd(V x, V weights, V sum) {
    return PairProducts::MulAdd(x, weights, sum);
  }
};

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
struct NativeBF16Pairs : BF16Pairs {
  static HWY_INLINE V MulAdd(V x, V weights, V sum) {
    return NativePairProducts::MulAdd(x, weights, sum);
  }
};
#endif

// Makes words of activations, a vector of words or a single one, for which `left` inputs are left.
// A word of FloatWords is one input.
struct FloatWords {
  static constexpr int64_t kInputs = 1;  // inputs of a word
  static HWY_INLINE V Load(const float* inputs) { return hn::LoadU(F32(), inputs); }
  static HWY_INLINE float LoadOne(const float* inputs, int64_t /*left*/) { return *inputs; }
};

// A word is two inputs, rounded to bf16, the first one in the lower half. Where one input is left,
// the other is 0.
struct RoundedPairs {
  static constexpr int64_t kInputs = 2;
  static HWY_INLINE V Load(const float* inputs) { return RoundToWords(F32(), inputs); }
  static HWY_INLINE float LoadOne(const float* inputs, int64_t left) {
    float pair[2 * kLanes] = {};
    std::copy_n(inputs, std::min(left, kInputs), pair);
    return hn::GetLane(Load(pair));
  }
};

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_PAIRS_INL_H_
