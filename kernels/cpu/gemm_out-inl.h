// How a matrix product's sums become its output. Included once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_OUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_OUT_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_OUT_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_OUT_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/gemm_blocks.h"
#include "kernels/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {

// Writes sums, [row][kPanelOutputs], to the outputs that exist, or adds them there: first the bias,
// then the old value.
HWY_INLINE void StoreSums(const BlockProduct& block, int64_t panel, const float* sums) {
  const F32 d;
  const int64_t first = panel * kPanelOutputs;
  const int64_t count = std::min(kPanelOutputs, block.weight.n - first);
  const bool accumulate = block.output == GemmOutput::kAccumulate;
  for (int64_t row = 0; row < block.num_rows; ++row) {
    const float* from = sums + row * kPanelOutputs;
    float* to = block.out + row * block.out_stride + first;
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
      V sum = hn::Load(d, from + j);
      if (block.bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, block.bias + first + j));
      if (accumulate) sum = hn::Add(hn::LoadU(d, to + j), sum);
      hn::StoreU(sum, d, to + j);
    }
    for (; j < count; ++j) {
      float sum = from[j];
      if (block.bias != nullptr) sum += block.bias[first + j];
      to[j] = accumulate ? to[j] + sum : sum;
    }
  }
}

// Fetches the outputs of some rows, which the last pass over their tile writes soon.
HWY_INLINE void FetchOut(const BlockProduct& block, int64_t panel, int64_t first_row,
                         int64_t num_rows) {
  for (int64_t row = first_row; row < first_row + num_rows; ++row) {
    const float* out = block.out + row * block.out_stride + panel * kPanelOutputs;
    __builtin_prefetch(out, 1, 3);
    __builtin_prefetch(out + kPanelOutputs / 2, 1, 3);
  }
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_OUT_INL_H_
