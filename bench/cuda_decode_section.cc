#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <vector>

#include "base/status.h"
#include "bench/cuda_attention_case.h"
#include "bench/cuda_sections.h"

namespace tandem {
namespace {

constexpr double kLargePool = 17.5e9;  // bytes read by one launch: more would not fit four times
constexpr double kPools = 2.5;         // of a point: two of bf16, one of fp8
constexpr double kFp8Counts = 134e6;   // bytes in bf16 from which on fp8 must pay
constexpr double kFp8Gain = 1.6;
constexpr double kMassCost = 1.02;
constexpr double kBlock16Cost = 1.03;  // over blocks of 64
constexpr double kSkewCost = 1.10;
constexpr double kPlanUs = 4;

// One batch of equal contexts, with its limits in microseconds on an H200.
struct Point {
  int32_t batch;
  int32_t context;
  double target_us;
  double fail_above_us;
};

// bf16, 32 query and 8 KV heads of 128, blocks of 16.
constexpr Point kPoints[] = {
    {1, 1024, 8, 11},     {1, 4096, 11, 15},    {1, 32768, 38, 43},    {8, 4096, 38, 43},
    {32, 1024, 38, 43},   {8, 16384, 134, 142}, {32, 4096, 134, 142},  {128, 1024, 134, 142},
    {8, 32768, 262, 275}, {64, 4096, 262, 275}, {256, 1024, 262, 275}, {256, 8192, 2060, 2150},
};

// Where there is no public number: latency and rate of the best there is, and of what is accepted.
TimeLimits LimitsByBytes(const CudaBench& bench, double bytes) {
  return bench.BoundByMemory({6 + bytes / 4.2e6, 9.5 + bytes / 4.1e6}, bytes);
}

std::string Title(const AttentionShape& shape) {
  const auto [shortest, longest] =
      std::minmax_element(shape.contexts.begin(), shape.contexts.end());
  std::string lengths = *shortest == *longest ? fmt::format("{}", *longest)
                                              : fmt::format("{}..{}", *shortest, *longest);
  return fmt::format("{} x {}, {}/{} heads of {}", shape.contexts.size(), lengths, shape.num_heads,
                     shape.num_kv_heads, shape.head_dim);
}

// Variants that are timed turn by turn, the first of which the others are compared with.
class Group {
 public:
  Group(CudaBench& bench, std::string shape) : bench_(bench), shape_(std::move(shape)) {}

  // `attention` must outlive the group.
  void Add(AttentionCase& attention, CudaVariant variant) {
    cases_.push_back(&attention);
    variants_.push_back(std::move(variant));
  }
  // limits(i, times) of the i-th variant. Returns the times.
  template <class Limits>
  absl::StatusOr<std::vector<CudaTiming>> Run(Limits limits) {
    int32_t launches = 0;
    for (const AttentionCase* c : cases_) launches = std::max(launches, c->launches());
    ASSIGN_OR_RETURN(const std::vector<CudaTiming> times, bench_.Time(variants_, launches));
    for (size_t i = 0; i < variants_.size(); ++i) {
      CudaRow row = {.section = "decode",
                     .op = "attention_decode",
                     .shape = shape_,
                     .variant = variants_[i].name,
                     .timing = times[i],
                     .cost = Cost(cases_[i]->Args(0)),
                     .bound = Bound::kRead,
                     .limits = limits(i, times)};
      ASSIGN_OR_RETURN(row.error, cases_[i]->ErrorOf(variants_[i]));
      if (i > 0) row.over_first = times[i].us / times[0].us;
      bench_.Add(row);
    }
    return times;
  }

 private:
  CudaBench& bench_;
  const std::string shape_;
  std::vector<AttentionCase*> cases_;
  std::vector<CudaVariant> variants_;
};

AttentionShape Uniform(const CudaBench& bench, int32_t batch, int32_t context) {
  AttentionShape shape;
  shape.contexts.assign(static_cast<size_t>(bench.Scaled(batch)),
                        static_cast<int32_t>(bench.Scaled(context, shape.block_tokens)));
  return shape;
}

// With something left for what a case works with.
absl::StatusOr<bool> HasMemoryFor(CudaBench& bench, double bytes) {
  constexpr double kShare = 0.95;
  ASSIGN_OR_RETURN(const DeviceMemory memory, bench.device().Memory());
  return bytes < kShare * static_cast<double>(memory.free_bytes);
}

// What the row at `index` of a point may take, given the times of the rows before it.
std::optional<TimeLimits> LimitsOf(const CudaBench& bench, const Point& point, double bytes,
                                   size_t index, const std::vector<CudaTiming>& times) {
  if (index == 0) return bench.BoundByMemory({point.target_us, point.fail_above_us}, bytes);
  if (index == 1) return TimeLimits{times[0].us * kMassCost, times[0].us * kMassCost};
  if (index == 2 && bytes >= kFp8Counts) {
    return TimeLimits{times[0].us / kFp8Gain, times[0].us / kFp8Gain};
  }
  return std::nullopt;
}

// One point of the table: ours as served by default, the other forms of a pool beside it (blocks of
// 64 where there is memory for all: not of the largest on 80 GB), and the baseline.
absl::Status RunPoint(CudaBench& bench, const Point& point) {
  AttentionShape shape = Uniform(bench, point.batch, point.context);
  const std::string title = Title(shape);
  if (!bench.Wanted("attention_decode", title)) return absl::OkStatus();
  const double bytes = shape.KvBytes();
  ASSIGN_OR_RETURN(const bool all_fit, HasMemoryFor(bench, kPools * bytes * bench.SetsOf(bytes)));
  ASSIGN_OR_RETURN(const auto plain, AttentionCase::Create(bench, shape));
  std::unique_ptr<AttentionCase> block64;
  if (all_fit) {
    shape.block_tokens = 64;
    ASSIGN_OR_RETURN(block64, AttentionCase::Create(bench, shape));
    shape.block_tokens = 16;
  }
  shape.kv_dtype = DType::kF8E4M3;
  ASSIGN_OR_RETURN(const auto fp8, AttentionCase::Create(bench, shape));

  Group group(bench, title);
  ASSIGN_OR_RETURN(CudaVariant ours, DecodeVariant(bench, *plain, "ours"));
  ASSIGN_OR_RETURN(CudaVariant mass, DecodeVariant(bench, *plain, "block mass", BlockMass::kOn));
  ASSIGN_OR_RETURN(CudaVariant of_fp8, DecodeVariant(bench, *fp8, "fp8"));
  ASSIGN_OR_RETURN(CudaVariant classic,
                   ClassicVariant(bench, *plain, "classic, parts", Partitions::k512));
  group.Add(*plain, std::move(ours));
  group.Add(*plain, std::move(mass));
  group.Add(*fp8, std::move(of_fp8));
  if (block64 != nullptr) {
    ASSIGN_OR_RETURN(CudaVariant of_64, DecodeVariant(bench, *block64, "block 64"));
    group.Add(*block64, std::move(of_64));
  }
  group.Add(*plain, std::move(classic));
  // Without partitions all logits of a context are in shared memory.
  constexpr size_t kStaticBytes = 4096;
  const size_t logits = static_cast<size_t>(plain->max_context()) * sizeof(float);
  if (logits + kStaticBytes <= bench.target().max_shared_bytes) {
    ASSIGN_OR_RETURN(CudaVariant whole,
                     ClassicVariant(bench, *plain, "classic", Partitions::kNone));
    group.Add(*plain, std::move(whole));
  }
  const auto limits = [&](size_t i, const std::vector<CudaTiming>& earlier) {
    return LimitsOf(bench, point, bytes, i, earlier);
  };
  ASSIGN_OR_RETURN(const std::vector<CudaTiming> times, group.Run(limits));
  if (block64 == nullptr) return absl::OkStatus();
  // The first row once more, beside what blocks of 64 allow it.
  constexpr size_t kBlock64 = 3;
  const double most_us = times[kBlock64].us * kBlock16Cost;
  bench.Add({.section = "decode",
             .op = "attention_decode",
             .shape = title,
             .variant = "ours by block 64",
             .timing = times[0],
             .cost = Cost(plain->Args(0)),
             .bound = Bound::kRead,
             .limits = TimeLimits{most_us, most_us}});
  return absl::OkStatus();
}

bool InTable(int32_t batch, int32_t context) {
  return std::any_of(std::begin(kPoints), std::end(kPoints),
                     [&](const Point& p) { return p.batch == batch && p.context == context; });
}

absl::Status RunAlone(CudaBench& bench, const AttentionShape& shape,
                      std::optional<TimeLimits> limits) {
  const std::string title = Title(shape);
  if (!bench.Wanted("attention_decode", title)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto attention, AttentionCase::Create(bench, shape));
  if (!cuda::TakesTensorCores(bench.target(), attention->Args(0))) {
    fmt::print("attention_decode  {}: left out, no kernel is compiled for it\n", title);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(CudaVariant ours, DecodeVariant(bench, *attention, "ours"));
  Group group(bench, title);
  group.Add(*attention, std::move(ours));
  return group.Run([&](size_t, const std::vector<CudaTiming>&) { return limits; }).status();
}

// Every batch of the grid at every context that the table does not hold.
absl::Status RunGrid(CudaBench& bench) {
  for (const int32_t batch : {1, 8, 32, 64, 128, 256}) {
    for (const int32_t context : {1024, 4096, 8192, 16384, 32768}) {
      const AttentionShape shape = Uniform(bench, batch, context);
      const double bytes = shape.KvBytes();
      if (InTable(batch, context) || bytes > kLargePool) continue;
      RETURN_IF_ERROR(bench.Tolerate(RunAlone(bench, shape, LimitsByBytes(bench, bytes))));
    }
  }
  return absl::OkStatus();
}

// Other heads: as many bytes as 8 x 16k.
absl::Status RunHeads(CudaBench& bench) {
  struct Heads {
    int32_t query;
    int32_t kv;
    int32_t dim;
    int32_t context;
  };
  constexpr Heads kHeads[] = {{32, 4, 128, 32768},
                              {64, 8, 128, 16384},
                              {32, 8, 64, 32768},
                              {16, 16, 128, 8192},
                              {16, 2, 256, 32768}};
  for (const Heads& heads : kHeads) {
    AttentionShape shape = Uniform(bench, 8, heads.context);
    shape.num_heads = heads.query;
    shape.num_kv_heads = heads.kv;
    shape.head_dim = heads.dim;
    const TimeLimits limits = LimitsByBytes(bench, shape.KvBytes());
    RETURN_IF_ERROR(bench.Tolerate(RunAlone(bench, shape, limits)));
  }
  return absl::OkStatus();
}

// One long context among short ones, against as many tokens in equal contexts.
absl::Status RunSkewed(CudaBench& bench) {
  AttentionShape skewed = Uniform(bench, 64, 512);
  skewed.contexts[0] = static_cast<int32_t>(bench.Scaled(32768, skewed.block_tokens));
  const std::string title = Title(skewed);
  if (!bench.Wanted("attention_decode", title)) return absl::OkStatus();
  AttentionShape even = skewed;
  const int64_t total = skewed.total_tokens();
  const auto count = static_cast<int64_t>(skewed.contexts.size());
  for (int64_t i = 0; i < count; ++i) {
    even.contexts[static_cast<size_t>(i)] =
        static_cast<int32_t>(total * (i + 1) / count - total * i / count);
  }
  ASSIGN_OR_RETURN(const auto even_case, AttentionCase::Create(bench, even));
  ASSIGN_OR_RETURN(const auto skewed_case, AttentionCase::Create(bench, skewed));
  ASSIGN_OR_RETURN(CudaVariant ours_even, DecodeVariant(bench, *even_case, "even"));
  ASSIGN_OR_RETURN(CudaVariant ours_skewed, DecodeVariant(bench, *skewed_case, "skewed"));
  Group group(bench, title);
  group.Add(*even_case, std::move(ours_even));
  group.Add(*skewed_case, std::move(ours_skewed));
  const auto limits = [](size_t i,
                         const std::vector<CudaTiming>& times) -> std::optional<TimeLimits> {
    if (i == 0) return std::nullopt;
    return TimeLimits{times[0].us * kSkewCost, times[0].us * kSkewCost};
  };
  return group.Run(limits).status();
}

absl::Status RunPlans(CudaBench& bench) {
  for (const int32_t batch : {1, 64, 256}) {
    const AttentionShape shape = Uniform(bench, batch, 1024);
    const std::string title = Title(shape);
    if (!bench.Wanted("plan_decode", title)) continue;
    ASSIGN_OR_RETURN(const auto attention, AttentionCase::Create(bench, shape));
    ASSIGN_OR_RETURN(const CudaVariant plan, PlanVariant(bench, *attention));
    ASSIGN_OR_RETURN(const std::vector<CudaTiming> times,
                     bench.Time({&plan, 1}, bench.options().max_launches));
    bench.Add({.section = "decode",
               .op = "plan_decode",
               .shape = title,
               .variant = plan.name,
               .timing = times[0],
               .limits = TimeLimits{kPlanUs, kPlanUs}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeSection(CudaBench& bench) {
  for (const Point& point : kPoints) RETURN_IF_ERROR(bench.Tolerate(RunPoint(bench, point)));
  RETURN_IF_ERROR(bench.Tolerate(RunSkewed(bench)));
  RETURN_IF_ERROR(RunHeads(bench));
  RETURN_IF_ERROR(bench.Tolerate(RunPlans(bench)));
  return RunGrid(bench);
}

}  // namespace tandem
