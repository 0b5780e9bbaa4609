#include <cmath>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

void RmsNormRow(const float* x, const float* HWY_RESTRICT weight, size_t n, float eps, float* out) {
  const F32Tag d;
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + eps);
  const F32 scales = hn::Set(d, scale);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 scaled = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    RmsNormRow(args.x.Row<const float>(row), args.weight.Row<const float>(0),
               static_cast<size_t>(args.x.shape[1]), args.eps, args.out.Row<float>(row));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(RmsNormRows);

absl::Status CpuOps::DoRmsNorm(Stream&, const RmsNormArgs& args) {
  const auto rows = &HWY_DYNAMIC_DISPATCH(RmsNormRows);
  ForRows(pool_, args.x.rows(), args.x.shape[1],
          [&](int64_t begin, int64_t end) { rows(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
