#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE F32 SiluMulVector(F32 gate, F32 up) {
  const F32Tag d;
  const F32 decay = Exp(hn::Neg(gate));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(d, 1.0f), decay)), up);
}

void SiluMulRow(const float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, size_t n,
                float* HWY_RESTRICT out) {
  const F32Tag d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(SiluMulVector(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < n; ++i) {
    out[i] = hn::GetLane(SiluMulVector(hn::Set(d, gate[i]), hn::Set(d, up[i])));
  }
}

void SiluMulRows(const SiluMulArgs& args, int64_t begin, int64_t end) {
  const int64_t n = args.out.shape[1];
  for (int64_t row = begin; row < end; ++row) {
    const auto* gate = args.gate_up.Row<const float>(row);
    SiluMulRow(gate, gate + n, static_cast<size_t>(n), args.out.Row<float>(row));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(SiluMulRows);

absl::Status CpuOps::DoSiluMul(Stream&, const SiluMulArgs& args) {
  const auto rows = &HWY_DYNAMIC_DISPATCH(SiluMulRows);
  ForRows(pool_, args.out.rows(), args.out.shape[1],
          [&](int64_t begin, int64_t end) { rows(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
