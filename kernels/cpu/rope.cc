#include <cmath>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Rotates a head. Products and sums are rounded separately, so that the scalar tail equals the
// vectors.
void RotateHead(const float* HWY_RESTRICT cos, const float* HWY_RESTRICT sin, size_t half,
                float* HWY_RESTRICT x) {
  const F32Tag d;
  float* HWY_RESTRICT y = x + half;
  size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32 first = hn::LoadU(d, x + i);
    const F32 second = hn::LoadU(d, y + i);
    const F32 c = hn::LoadU(d, cos + i);
    const F32 s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(first, c), hn::Mul(second, s)), d, x + i);
    hn::StoreU(hn::Add(hn::Mul(second, c), hn::Mul(first, s)), d, y + i);
  }
  for (; i < half; ++i) {
    const float first = x[i];
    const float second = y[i];
    x[i] = first * cos[i] - second * sin[i];
    y[i] = second * cos[i] + first * sin[i];
  }
}

void NormHead(const float* HWY_RESTRICT weight, size_t n, float eps, float* HWY_RESTRICT x) {
  const float scale = 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + eps);
  for (size_t i = 0; i < n; ++i) x[i] = x[i] * scale * weight[i];
}

void RopeHeads(const RopeArgs& args, const TensorView& heads, const TensorView& norm,
               int64_t token) {
  const auto head_dim = static_cast<size_t>(heads.shape[2]);
  const int32_t position = args.positions[static_cast<size_t>(token)];
  const auto* cos = args.cos.Row<const float>(position);
  const auto* sin = args.sin.Row<const float>(position);
  auto* head = heads.Row<float>(token);
  for (int64_t h = 0; h < heads.shape[1]; ++h, head += head_dim) {
    if (norm.present()) NormHead(norm.Row<const float>(0), head_dim, args.norm_eps, head);
    RotateHead(cos, sin, head_dim / 2, head);
  }
}

void RopeTokens(const RopeArgs& args, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    RopeHeads(args, args.q, args.q_norm, token);
    RopeHeads(args, args.k, args.k_norm, token);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(RopeTokens);

absl::Status CpuOps::DoRope(Stream&, const RopeArgs& args) {
  const auto tokens = &HWY_DYNAMIC_DISPATCH(RopeTokens);
  const int64_t elements = (args.q.shape[1] + args.k.shape[1]) * args.q.shape[2];
  ForRows(pool_, args.q.rows(), elements,
          [&](int64_t begin, int64_t end) { tokens(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
