#include <algorithm>
#include <string>

#include "base/status.h"
#include "bench/cuda_sections.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/gemm/gemm.h"

namespace tandem {
namespace {

constexpr int32_t kFewLaunches = 4;
constexpr int32_t kChain = 100;  // kernels whose launches are timed

CudaRow RowOf(std::string op, std::string shape, const CudaTiming& timing) {
  return {.section = "ceilings",
          .op = std::move(op),
          .shape = std::move(shape),
          .variant = "",
          .timing = timing};
}

absl::StatusOr<CudaTiming> TimeOne(CudaBench& bench, CudaVariant variant, int32_t launches) {
  ASSIGN_OR_RETURN(const auto times, bench.Time({&variant, 1}, launches));
  return times[0];
}

absl::Status MeasureMemory(CudaBench& bench, CudaCeilings& ceilings) {
  constexpr int64_t kStep = 64 << 10;
  const int64_t bytes = bench.Scaled(int64_t{8} << 30, kStep);
  CaseMemory memory(bench.device());
  ASSIGN_OR_RETURN(const TensorView data, bench.Normal(memory, DType::kBF16, {bytes / 2}));
  ASSIGN_OR_RETURN(const TensorView sink, bench.Poisoned(memory, DType::kF32, {1}));
  const cuda::LaunchTarget on = bench.target();
  const auto read = [&](int32_t) {
    return cuda::ToStatus(cuda::ReadStream(on.stream, on.num_sms, data.data, bytes,
                                           static_cast<uint32_t*>(sink.data)),
                          "read");
  };
  // The driver may take a copy engine, which is not the fastest there is.
  auto* const from = static_cast<std::byte*>(data.data);
  const auto half = static_cast<size_t>(bytes / 2);
  const auto copy = [&](int32_t) { return bench.stream().Copy({from + half, half}, {from, half}); };
  const auto copy_by_kernel = [&](int32_t) {
    return cuda::ToStatus(cuda::CopyStream(on.stream, on.num_sms, from + half, from, bytes / 2),
                          "copy");
  };
  ASSIGN_OR_RETURN(const CudaTiming reading, TimeOne(bench, {"", read}, kFewLaunches));
  ASSIGN_OR_RETURN(const CudaTiming copying, TimeOne(bench, {"", copy}, kFewLaunches));
  ASSIGN_OR_RETURN(const CudaTiming by_kernel, TimeOne(bench, {"", copy_by_kernel}, kFewLaunches));
  ceilings.read_tbps = static_cast<double>(bytes) / reading.us * 1e-6;
  ceilings.copy_tbps = static_cast<double>(bytes) / std::min(copying.us, by_kernel.us) * 1e-6;
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  CudaRow row = RowOf("read", fmt::format("{:.2f} GB", gigabytes), reading);
  row.cost.bytes = static_cast<double>(bytes);
  bench.Add(row);
  for (const auto& [name, timing] :
       {std::pair("driver", copying), std::pair("kernel", by_kernel)}) {
    row = RowOf("copy", fmt::format("{:.2f} GB", gigabytes / 2), timing);
    row.variant = name;
    row.cost.bytes = static_cast<double>(bytes);
    bench.Add(row);
  }
  return absl::OkStatus();
}

absl::Status MeasureGemm(CudaBench& bench, CudaCeilings& ceilings) {
  const auto library = cuda::CublasLtLibrary::Open(cuda::CublasLtNames());
  if (!library.ok()) {
    fmt::print("ceilings: no GEMM: {}\n", library.status().ToString());
    return absl::OkStatus();
  }
  const int64_t size = bench.Scaled(8192, 64);
  CaseMemory memory(bench.device());
  GemmArgs args;
  ASSIGN_OR_RETURN(args.x, bench.Normal(memory, DType::kBF16, {size, size}));
  ASSIGN_OR_RETURN(const TensorView weight, bench.Normal(memory, DType::kBF16, {size, size}));
  ASSIGN_OR_RETURN(args.out, bench.Poisoned(memory, DType::kBF16, {size, size}));
  args.weight = {static_cast<std::byte*>(weight.data), DType::kBF16, size, size};
  ASSIGN_OR_RETURN(std::byte * workspace, memory.Take(cuda::CublasLtGemm::kWorkspaceBytes));
  cuda::CublasLtGemm gemm(*library);
  const auto multiply = [&](int32_t) {
    return gemm.Run(static_cast<cuda::CudaStream&>(bench.stream()), args, workspace);
  };
  ASSIGN_OR_RETURN(const CudaTiming timing, TimeOne(bench, {"", multiply}, kFewLaunches));
  CudaRow row = RowOf("gemm", fmt::format("bf16, {}^3", size), timing);
  row.variant = "cuBLASLt";
  row.cost = Cost(args);
  ceilings.gemm_tflops = row.cost.flops / timing.us * 1e-6;
  bench.Add(row);
  return absl::OkStatus();
}

absl::Status MeasureLaunches(CudaBench& bench) {
  const int32_t launches = bench.options().scale < 1 ? bench.options().max_launches : kChain;
  for (const auto& [name, overlap] : {std::pair("one after the other", cuda::Overlap::kNone),
                                      std::pair("programmatic", cuda::Overlap::kProgrammatic)}) {
    const auto launch = [&bench, overlap = overlap](int32_t) {
      return cuda::ToStatus(cuda::EmptyKernel(bench.target().stream, overlap), "empty kernel");
    };
    ASSIGN_OR_RETURN(const CudaTiming timing, TimeOne(bench, {"", launch}, launches));
    bench.Add(RowOf("empty kernel", name, timing));
  }
  return absl::OkStatus();
}

}  // namespace

// What is measured beside a ceiling is worth knowing without it, too.
absl::Status MeasureCeilings(CudaBench& bench) {
  CudaCeilings ceilings;
  RETURN_IF_ERROR(bench.Tolerate(MeasureMemory(bench, ceilings)));
  RETURN_IF_ERROR(bench.Tolerate(MeasureGemm(bench, ceilings)));
  bench.set_ceilings(ceilings);
  return bench.Tolerate(MeasureLaunches(bench));
}

}  // namespace tandem
