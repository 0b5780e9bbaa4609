#include <vector>

#include "base/status.h"
#include "bench/cuda_attention_case.h"
#include "bench/cuda_sections.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem {
namespace {

constexpr double kPortableTflops = 300;
constexpr int kPortableCapability = 89;  // the highest that has no kernel of its own

// `rows` new tokens of each sequence at the end of `context`; the rate that Hopper's kernel is to
// reach, 0: none is set.
struct PrefillPoint {
  int32_t sequences;
  int32_t rows;
  int32_t context;
  double tflops;
};
constexpr PrefillPoint kPrefillPoints[] = {
    {1, 512, 8192, 420}, {1, 2048, 8192, 500}, {1, 8192, 8192, 540}, {1, 1024, 1024, 0},
    {1, 4096, 4096, 0},  {2, 512, 4096, 0},    {1, 16, 8192, 0},     {1, 128, 8192, 0},
    {8, 64, 8192, 0},    {1, 512, 32768, 0},
};

TimeLimits LimitsByRate(double flops, double tflops) {
  const double us = flops / tflops * 1e-6;
  return {us, us};
}

absl::Status RunPrefillPoint(CudaBench& bench, const PrefillPoint& point) {
  AttentionShape shape;
  shape.rows = static_cast<int32_t>(bench.Scaled(point.rows));
  shape.contexts.assign(
      static_cast<size_t>(point.sequences),
      std::max(shape.rows, static_cast<int32_t>(bench.Scaled(point.context, 16))));
  const std::string title =
      fmt::format("{} x {} of {}, {}/{} heads of {}", point.sequences, shape.rows,
                  shape.contexts[0], shape.num_heads, shape.num_kv_heads, shape.head_dim);
  if (!bench.Wanted("attention_prefill", title)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto attention, AttentionCase::Create(bench, shape));
  cuda::LaunchTarget portable = bench.target();
  portable.compute_capability = std::min(portable.compute_capability, kPortableCapability);
  std::vector<CudaVariant> variants(1);
  ASSIGN_OR_RETURN(variants[0], PrefillVariant(bench, *attention, "portable", portable));
  if (portable.compute_capability < bench.target().compute_capability) {
    ASSIGN_OR_RETURN(variants.emplace_back(),
                     PrefillVariant(bench, *attention, "sm_90a", bench.target()));
  }
  const OpCost cost = Cost(attention->Args(0));
  ASSIGN_OR_RETURN(const std::vector<CudaTiming> times,
                   bench.Time(variants, bench.options().max_launches));
  for (size_t i = 0; i < variants.size(); ++i) {
    CudaRow row = {.section = "prefill",
                   .op = "attention_prefill",
                   .shape = title,
                   .variant = variants[i].name,
                   .timing = times[i],
                   .cost = cost,
                   .bound = Bound::kGemm};
    if (point.tflops > 0) {
      row.limits = LimitsByRate(cost.flops, i == 0 ? kPortableTflops : point.tflops);
    }
    if (point.sequences == 1 || shape.rows <= 64) {
      ASSIGN_OR_RETURN(row.error, attention->ErrorOf(variants[i]));
    }
    if (i > 0) row.over_first = times[i].us / times[0].us;
    bench.Add(row);
  }
  return absl::OkStatus();
}

// What an eviction policy asks for beside a prefill: how much each token of the context weighs.
absl::Status RunColumnMass(CudaBench& bench, int32_t last_rows) {
  AttentionShape shape;
  shape.rows = static_cast<int32_t>(bench.Scaled(512));
  shape.contexts = {static_cast<int32_t>(bench.Scaled(8192, 16))};
  const std::string title = fmt::format("last {} rows of {}", last_rows, shape.contexts[0]);
  if (!bench.Wanted("column_mass", title)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto attention, AttentionCase::Create(bench, shape));
  ASSIGN_OR_RETURN(const TensorView lse,
                   bench.Normal(attention->memory(), DType::kF32, {shape.rows, shape.num_heads}));
  ASSIGN_OR_RETURN(
      const TensorView out,
      bench.Poisoned(attention->memory(), DType::kF32, {1, shape.num_kv_heads, shape.contexts[0]}));
  const auto args_of = [&](int32_t launch) {
    ColumnMassArgs args = {
        .attention = attention->Args(launch), .last_rows = last_rows, .out = out};
    args.attention.lse = lse;
    return args;
  };
  const cuda::LaunchTarget on = bench.target();
  const CudaVariant variant = {"ours", [&](int32_t launch) {
                                 return cuda::ToStatus(cuda::ColumnMass(on, args_of(launch)),
                                                       "column mass");
                               }};
  ASSIGN_OR_RETURN(const std::vector<CudaTiming> times,
                   bench.Time({&variant, 1}, bench.options().max_launches));
  bench.Add({.section = "prefill",
             .op = "column_mass",
             .shape = title,
             .variant = variant.name,
             .timing = times[0],
             .cost = Cost(args_of(0)),
             .bound = Bound::kRead});
  return absl::OkStatus();
}

}  // namespace

absl::Status PrefillSection(CudaBench& bench) {
  for (const PrefillPoint& point : kPrefillPoints)
    RETURN_IF_ERROR(bench.Tolerate(RunPrefillPoint(bench, point)));
  for (const int32_t last_rows : {32, 256}) {
    RETURN_IF_ERROR(bench.Tolerate(RunColumnMass(bench, last_rows)));
  }
  return absl::OkStatus();
}

}  // namespace tandem
