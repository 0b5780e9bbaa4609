#include <numeric>
#include <random>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "bench/cuda_sections.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/launchers.h"

// The ops of a model of Qwen3-8B's shape that are not attention.
namespace tandem {
namespace {

constexpr int64_t kHidden = 4096;
constexpr int64_t kMlp = 12288;
constexpr int64_t kVocabulary = 151936;
constexpr double kDecodeReadShare = 0.85;  // of the read ceiling, of the weights of few rows

TensorView RowsOfSet(const TensorView& tensor, int64_t rows, int64_t set) {
  TensorView view = tensor;
  view.data = tensor.Row<std::byte>(0) + set * rows * tensor.row_stride * SizeOf(tensor.dtype);
  view.shape[0] = rows;
  return view;
}

absl::Status AddSmall(CudaBench& bench, const CudaVariant& variant, CudaRow row) {
  if (!bench.Wanted(row.op, row.shape)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto times, bench.Time({&variant, 1}, bench.LaunchesOf(row.cost.bytes)));
  row.section = "small";
  row.variant = variant.name;
  row.timing = times[0];
  row.bound = Bound::kCopy;
  bench.Add(row);
  return absl::OkStatus();
}

absl::Status RunNorm(CudaBench& bench, int64_t rows) {
  CaseMemory memory(bench.device());
  RmsNormArgs args;
  const int64_t sets = bench.SetsOf(static_cast<double>(rows * kHidden * 6));
  ASSIGN_OR_RETURN(const TensorView x, bench.Normal(memory, DType::kF32, {sets * rows, kHidden}));
  ASSIGN_OR_RETURN(const TensorView out,
                   bench.Poisoned(memory, DType::kBF16, {sets * rows, kHidden}));
  ASSIGN_OR_RETURN(args.weight, bench.Normal(memory, DType::kF32, {kHidden}));
  const auto use = [&](int32_t launch) {
    args.x = RowsOfSet(x, rows, launch % sets);
    args.out = RowsOfSet(out, rows, launch % sets);
  };
  use(0);
  const cuda::LaunchTarget on = bench.target();
  return AddSmall(
      bench,
      {"ours",
       [&](int32_t launch) {
         use(launch);
         return cuda::ToStatus(cuda::RmsNorm(on, args), "rms_norm");
       }},
      {.op = "rms_norm", .shape = fmt::format("{} x {}", rows, kHidden), .cost = Cost(args)});
}

absl::Status RunSilu(CudaBench& bench, int64_t rows) {
  CaseMemory memory(bench.device());
  SiluMulArgs args;
  const int64_t sets = bench.SetsOf(static_cast<double>(rows * kMlp * 6));
  ASSIGN_OR_RETURN(const TensorView gate_up,
                   bench.Normal(memory, DType::kBF16, {sets * rows, 2 * kMlp}));
  ASSIGN_OR_RETURN(const TensorView out, bench.Poisoned(memory, DType::kBF16, {sets * rows, kMlp}));
  const auto use = [&](int32_t launch) {
    args.gate_up = RowsOfSet(gate_up, rows, launch % sets);
    args.out = RowsOfSet(out, rows, launch % sets);
  };
  use(0);
  const cuda::LaunchTarget on = bench.target();
  return AddSmall(
      bench,
      {"ours",
       [&](int32_t launch) {
         use(launch);
         return cuda::ToStatus(cuda::SiluMul(on, args), "silu_mul");
       }},
      {.op = "silu_mul", .shape = fmt::format("{} x {}", rows, kMlp), .cost = Cost(args)});
}

absl::Status RunEmbedding(CudaBench& bench, int64_t rows) {
  CaseMemory memory(bench.device());
  const int64_t vocabulary = bench.Scaled(kVocabulary);
  EmbeddingArgs args;
  ASSIGN_OR_RETURN(const TensorView table,
                   bench.Normal(memory, DType::kBF16, {vocabulary, kHidden}));
  args.table = {static_cast<std::byte*>(table.data), DType::kBF16, vocabulary, kHidden};
  ASSIGN_OR_RETURN(args.out, bench.Poisoned(memory, DType::kF32, {rows, kHidden}));
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  std::mt19937 random(3);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  ASSIGN_OR_RETURN(const int32_t* on_ids, bench.Upload(memory, std::span<const int32_t>(ids)));
  args.token_ids = {std::span<const int32_t>(ids), on_ids};
  const cuda::LaunchTarget on = bench.target();
  return AddSmall(
      bench,
      {"ours", [&](int32_t) { return cuda::ToStatus(cuda::Embedding(on, args), "embedding"); }},
      {.op = "embedding", .shape = fmt::format("{} x {}", rows, kHidden), .cost = Cost(args)});
}

// One product of few rows, by the library and by our kernel, and by the latter on the same weights
// in int8, all on weights that no cache holds.
class SkinnyCase {
 public:
  static absl::StatusOr<std::unique_ptr<SkinnyCase>> Create(CudaBench& bench, int64_t n, int64_t k,
                                                            int64_t rows) {
    std::unique_ptr<SkinnyCase> c(new SkinnyCase(bench));
    c->sets_ = bench.SetsOf(static_cast<double>(n * k * SizeOf(DType::kBF16)));
    ASSIGN_OR_RETURN(c->args_.x, bench.Normal(c->memory_, DType::kBF16, {rows, k}));
    ASSIGN_OR_RETURN(c->weights_, bench.Normal(c->memory_, DType::kBF16, {c->sets_ * n, k}));
    ASSIGN_OR_RETURN(c->args_.out, bench.Poisoned(c->memory_, DType::kF32, {rows, n}));
    ASSIGN_OR_RETURN(c->reference_, bench.Poisoned(c->memory_, DType::kF32, {rows, n}));
    ASSIGN_OR_RETURN(c->workspace_, c->memory_.Take(cuda::CublasLtGemm::kWorkspaceBytes));
    c->args_.weight = {nullptr, DType::kBF16, n, k};
    RETURN_IF_ERROR(c->Quantise());
    return c;
  }

  GemmArgs Args(int32_t launch) const {
    GemmArgs args = args_;
    const TensorView weight = RowsOfSet(weights_, args.weight.n, launch % sets_);
    args.weight.data = static_cast<std::byte*>(weight.data);
    return args;
  }
  GemmArgs CodedArgs(int32_t launch) const {
    GemmArgs args = args_;
    args.weight.format = WeightFormat::Int8();
    args.weight.data = codes_ + launch % sets_ * coded_bytes_;
    args.out = coded_out_;
    return args;
  }
  std::vector<CudaVariant> Variants(cuda::CublasLtGemm& library) {
    const auto by_library = [this, &library](int32_t launch) {
      GemmArgs args = Args(launch);
      args.out = reference_;
      return library.Run(static_cast<cuda::CudaStream&>(bench_.stream()), args, workspace_);
    };
    std::vector<CudaVariant> variants = {{"cuBLASLt", by_library}};
    if (cuda::TakesSkinnyGemm(Args(0))) {
      variants.push_back({"ours", [this](int32_t launch) {
                            return cuda::ToStatus(cuda::SkinnyGemm(bench_.target(), Args(launch)),
                                                  "gemm");
                          }});
      variants.push_back({"ours, int8", [this](int32_t launch) {
                            return cuda::ToStatus(
                                cuda::SkinnyGemm(bench_.target(), CodedArgs(launch)), "gemm");
                          }});
    }
    return variants;
  }
  // What one launch of the variant of this number moves and computes.
  OpCost CostOf(size_t variant) const { return Cost(variant == kCoded ? CodedArgs(0) : Args(0)); }
  // The error of one of our variants against the library's.
  absl::StatusOr<double> Error(const std::vector<CudaVariant>& variants, size_t variant) {
    const TensorView& out = variant == kCoded ? coded_out_ : args_.out;
    RETURN_IF_ERROR(bench_.Poison(out));
    for (const size_t queued : {size_t{0}, variant}) RETURN_IF_ERROR(variants[queued].queue(0));
    return bench_.Error(out, reference_);
  }

 private:
  static constexpr size_t kCoded = 2;  // of the variants

  explicit SkinnyCase(CudaBench& bench) : bench_(bench), memory_(bench.device()) {}

  // Each set of the weights in int8.
  absl::Status Quantise() {
    const GemmArgs first = Args(0);
    coded_bytes_ = bench_.ops().PackedBytes(WeightFormat::Int8(), first.weight.n, first.weight.k);
    ASSIGN_OR_RETURN(codes_, memory_.Take(sets_ * coded_bytes_));
    ASSIGN_OR_RETURN(coded_out_,
                     bench_.Poisoned(memory_, DType::kF32, {args_.x.rows(), first.weight.n}));
    for (int64_t set = 0; set < sets_; ++set) {
      const TensorView weights = RowsOfSet(weights_, first.weight.n, set);
      const PackedMatrix coded = CodedArgs(static_cast<int32_t>(set)).weight;
      RETURN_IF_ERROR(bench_.ops().PackWeight(bench_.stream(), coded, {&weights, 1}));
    }
    return absl::OkStatus();
  }

  CudaBench& bench_;
  CaseMemory memory_;
  GemmArgs args_;
  TensorView weights_;
  TensorView reference_;
  TensorView coded_out_;
  std::byte* codes_ = nullptr;
  std::byte* workspace_ = nullptr;
  int64_t coded_bytes_ = 0;  // of a set
  int64_t sets_ = 0;
};

absl::Status RunSkinny(CudaBench& bench, cuda::CublasLtGemm& library, int64_t n, int64_t k,
                       int64_t rows) {
  const int64_t scaled_n = bench.Scaled(n, 64);
  const int64_t scaled_k = bench.Scaled(k, 64);
  const std::string shape = fmt::format("{} rows, {} x {}", rows, scaled_n, scaled_k);
  if (!bench.Wanted("gemm", shape)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto c, SkinnyCase::Create(bench, scaled_n, scaled_k, rows));
  const std::vector<CudaVariant> variants = c->Variants(library);
  ASSIGN_OR_RETURN(const auto times, bench.Time(variants, bench.LaunchesOf(c->CostOf(0).bytes)));
  for (size_t i = 0; i < variants.size(); ++i) {
    const OpCost cost = c->CostOf(i);
    CudaRow row = {.section = "gemm",
                   .op = "gemm",
                   .shape = shape,
                   .variant = variants[i].name,
                   .timing = times[i],
                   .cost = cost,
                   .bound = Bound::kRead};
    if (i > 0) {
      row.over_first = times[i].us / times[0].us;
      ASSIGN_OR_RETURN(row.error, c->Error(variants, i));
      // Better than the library's, or near what reading takes.
      const double reading =
          bench.ceilings().read_tbps > 0
              ? cost.bytes / (kDecodeReadShare * bench.ceilings().read_tbps) * 1e-6
              : 0;
      const double us = std::max(reading, times[0].us);
      row.limits = TimeLimits{us, us};
    }
    bench.Add(row);
  }
  return absl::OkStatus();
}

absl::Status RunSample(CudaBench& bench, int32_t rows, const cuda::DeviceSampleRow& how,
                       std::string name) {
  const int32_t vocabulary = static_cast<int32_t>(bench.Scaled(kVocabulary));
  const std::string shape = fmt::format("{} rows of {}, {}", rows, vocabulary, name);
  if (!bench.Wanted("sample", shape)) return absl::OkStatus();
  CaseMemory memory(bench.device());
  const double bytes = static_cast<double>(rows) * vocabulary * sizeof(float);
  const int64_t sets = bench.SetsOf(bytes);
  ASSIGN_OR_RETURN(const TensorView logits,
                   bench.Normal(memory, DType::kF32, {sets * rows, vocabulary}, 3.0f));
  std::vector<cuda::DeviceSampleRow> all(static_cast<size_t>(rows), how);
  for (int32_t i = 0; i < rows; ++i) all[static_cast<size_t>(i)].uniform = UniformAt(7, i);
  ASSIGN_OR_RETURN(const cuda::DeviceSampleRow* on_rows,
                   bench.Upload(memory, std::span<const cuda::DeviceSampleRow>(all)));
  ASSIGN_OR_RETURN(std::byte * sampled,
                   memory.Take(rows * static_cast<int64_t>(sizeof(cuda::DeviceSampledToken))));
  const size_t scratch_bytes = cuda::SampleScratchBytes(rows, vocabulary);
  ASSIGN_OR_RETURN(std::byte * scratch, memory.Take(static_cast<int64_t>(scratch_bytes)));
  const cuda::LaunchTarget on = bench.target();
  RETURN_IF_CUDA_ERROR(cudaMemsetAsync(scratch, 0, scratch_bytes, on.stream), "clear");
  cuda::SampleLaunch launch = {.logits = nullptr,
                               .row_stride = logits.row_stride,
                               .num_rows = rows,
                               .vocab = vocabulary,
                               .rows = on_rows,
                               .token_ids = nullptr,
                               .scratch = scratch,
                               .sampled = reinterpret_cast<cuda::DeviceSampledToken*>(sampled),
                               .top = nullptr};
  const CudaVariant variant = {"ours", [&](int32_t i) {
                                 launch.logits = RowsOfSet(logits, rows, i % sets).Row<float>(0);
                                 return cuda::ToStatus(cuda::Sample(on, launch), "sample");
                               }};
  ASSIGN_OR_RETURN(const auto times, bench.Time({&variant, 1}, bench.LaunchesOf(bytes)));
  bench.Add({.section = "sampling",
             .op = "sample",
             .shape = shape,
             .variant = variant.name,
             .timing = times[0],
             .cost = {bytes, bytes / sizeof(float)},
             .bound = Bound::kRead});
  return absl::OkStatus();
}

}  // namespace

absl::Status SmallOpsSection(CudaBench& bench) {
  for (const int64_t rows : {1, 64, 4096}) {
    const int64_t scaled = bench.Scaled(rows);
    RETURN_IF_ERROR(bench.Tolerate(RunNorm(bench, scaled)));
    RETURN_IF_ERROR(bench.Tolerate(RunSilu(bench, scaled)));
    RETURN_IF_ERROR(bench.Tolerate(RunEmbedding(bench, scaled)));
  }
  return absl::OkStatus();
}

absl::Status GemmSection(CudaBench& bench) {
  const auto library = cuda::CublasLtLibrary::Open(cuda::CublasLtNames());
  if (!library.ok()) {
    fmt::print("gemm: left out: {}\n", library.status().ToString());
    return absl::OkStatus();
  }
  cuda::CublasLtGemm gemm(*library);
  constexpr std::pair<int64_t, int64_t> kShapes[] = {{6144, kHidden},
                                                     {kHidden, kHidden},
                                                     {2 * kMlp, kHidden},
                                                     {kHidden, kMlp},
                                                     {kVocabulary, kHidden}};
  for (const auto& [n, k] : kShapes) {
    for (const int64_t rows : {1, 2, 4, 8, 16}) {
      RETURN_IF_ERROR(bench.Tolerate(RunSkinny(bench, gemm, n, k, rows)));
    }
  }
  return absl::OkStatus();
}

absl::Status SamplingSection(CudaBench& bench) {
  cuda::DeviceSampleRow greedy = {};
  greedy.top_p = 1;
  greedy.repetition_penalty = 1;
  greedy.num_logprobs = -1;
  cuda::DeviceSampleRow drawn = greedy;
  drawn.temperature = 0.8f;
  cuda::DeviceSampleRow nucleus = drawn;
  nucleus.top_p = 0.95f;
  cuda::DeviceSampleRow best = drawn;
  best.top_k = 50;
  for (const int32_t rows : {1, 8, 64, 256}) {
    const auto scaled = static_cast<int32_t>(bench.Scaled(rows));
    RETURN_IF_ERROR(bench.Tolerate(RunSample(bench, scaled, greedy, "greedy")));
    RETURN_IF_ERROR(bench.Tolerate(RunSample(bench, scaled, drawn, "drawn")));
    RETURN_IF_ERROR(bench.Tolerate(RunSample(bench, scaled, nucleus, "top-p 0.95")));
    RETURN_IF_ERROR(bench.Tolerate(RunSample(bench, scaled, best, "top-k 50")));
  }
  return absl::OkStatus();
}

}  // namespace tandem
