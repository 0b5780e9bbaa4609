// How fast a whole model runs on a GPU, without a checkpoint, the engine or gRPC:
//   cuda_model_bench [--device cuda:0] [--shape qwen3-8b|tiny] [--layers 36] [--steps 32]
//                    [--commit ID] [--json FILE]
// Random bf16 weights in the shape of Qwen3-8B are made on the device. Prefill: one prompt, one
// pass, from the call to its end. Decode step: as the engine runs them, forward pass, greedy
// sampling, tokens back, the next step; from one step's begin to the next. Host gap: what a decode
// step takes beyond its forward pass queued without a pause and its sampling kernels. Then the ops
// of one pass, each between two events. Shares are of the ceilings of the same run.

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/cuda_bench.h"
#include "bench/cuda_model.h"
#include "bench/cuda_sections.h"
#include "bench/flags.h"
#include "bench/profiling_ops.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem {
namespace {

constexpr double kBetaUs = 4500;  // one sequence, 512 tokens of context
constexpr double kPrefillUsPerToken = 25;
constexpr double kHostGapUs = 100;

struct Flags {
  CudaBenchOptions options;
  std::string shape = "qwen3-8b";
  std::string commit;
  std::string json_path;
  int32_t layers = 36;
  int32_t steps = 32;
};

// What is run of one shape.
struct Plan {
  ModelConfig config;
  std::vector<int32_t> prompts;
  std::vector<int32_t> batches;
  int32_t depth = 0;  // context of every decode
};

absl::StatusOr<Plan> PlanOf(const Flags& flags) {
  if (flags.shape == "qwen3-8b") {
    return Plan{Qwen3Shape(flags.layers), {1024, 4096, 8192}, {1, 8, 32, 64, 128, 256}, 512};
  }
  if (flags.shape != "tiny") {
    return InvalidArgument("--shape {}: qwen3-8b, or tiny", flags.shape);
  }
  Plan plan = {Qwen3Shape(2), {32}, {1, 2}, 32};
  plan.config.hidden_size = 128;
  plan.config.num_heads = 4;
  plan.config.num_kv_heads = 2;
  plan.config.head_dim = 64;
  plan.config.intermediate_size = 192;
  plan.config.vocab_size = 512;
  return plan;
}

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--device", flags.options.device);
  parser.Text("--shape", flags.shape);
  parser.Count("--layers", flags.layers);
  parser.Count("--steps", flags.steps);
  parser.Text("--commit", flags.commit);
  parser.Text("--json", flags.json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  // Sizes of tests say nothing of time.
  if (flags.shape == "tiny") {
    flags.options.scale = 0.002;
    flags.options.repeats = 2;
    flags.options.max_launches = 2;
  }
  return flags;
}

// Adds up the time between two events around each call.
class EventClock final : public OpClock {
 public:
  explicit EventClock(cudaStream_t stream) : stream_(stream) {}

  absl::Status Begin(Stream&, OpKind kind) override {
    calls_.push_back({kind, {}, {}});
    return calls_.back().begin.Record(stream_);
  }
  absl::Status End(Stream&, OpKind) override { return calls_.back().end.Record(stream_); }

  // The times of all calls since the last call of this; the stream must have ended them.
  absl::StatusOr<std::array<double, kNumOpKinds>> TakeMicroseconds() {
    std::array<double, kNumOpKinds> sums = {};
    for (const Call& call : std::exchange(calls_, {})) {
      ASSIGN_OR_RETURN(const double us, call.end.MicrosecondsSince(call.begin));
      sums[static_cast<size_t>(call.kind)] += us;
    }
    return sums;
  }

 private:
  struct Call {
    OpKind kind;
    TimedEvent begin;
    TimedEvent end;
  };
  const cudaStream_t stream_;
  std::vector<Call> calls_;
};

class ModelBench {
 public:
  ModelBench(CudaBench& bench, CudaModel& model, const Plan& plan, int32_t steps)
      : bench_(bench), model_(model), plan_(plan), steps_(steps) {}

  absl::Status Run() {
    Timings prefills;
    Timings decodes;
    for (const int32_t tokens : plan_.prompts) {
      prefills.push_back(TimePrefill(tokens));
      RETURN_IF_ERROR(bench_.Tolerate(prefills.back().status()));
    }
    for (const int32_t batch : plan_.batches) {
      decodes.push_back(TimeDecode(batch));
      RETURN_IF_ERROR(bench_.Tolerate(decodes.back().status()));
    }
    return Profile(prefills, decodes);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Timings = std::vector<absl::StatusOr<CudaTiming>>;

  static double MicrosecondsSince(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  absl::StatusOr<CudaTiming> TimePrefill(int32_t tokens) {
    constexpr int kRepeats = 7;
    std::vector<double> us;
    for (int i = 0; i <= kRepeats; ++i) {
      const Clock::time_point start = Clock::now();
      RETURN_IF_ERROR(model_.QueuePrefill(tokens));
      RETURN_IF_ERROR(bench_.stream().Synchronize());
      if (i > 0) us.push_back(MicrosecondsSince(start));  // libraries choose kernels in the first
    }
    return TimingOf(us);
  }

  // The passes of one batch, as many as `steps_`, without sampling between them.
  absl::StatusOr<double> ForwardMicroseconds(int32_t batch) {
    TimedEvent begin;
    TimedEvent end;
    RETURN_IF_ERROR(begin.Record(bench_.target().stream));
    for (int32_t i = 0; i < steps_; ++i) {
      RETURN_IF_ERROR(model_.QueueDecode(batch, plan_.depth - 1).status());
    }
    RETURN_IF_ERROR(end.Record(bench_.target().stream));
    RETURN_IF_ERROR(bench_.stream().Synchronize());
    ASSIGN_OR_RETURN(const double us, end.MicrosecondsSince(begin));
    return us / steps_;
  }

  // Sampling alone, its copies and the wait for them not counted.
  absl::StatusOr<double> SampleMicroseconds(const TensorView& logits) {
    const auto rows = static_cast<int32_t>(logits.rows());
    CaseMemory memory(bench_.device());
    cuda::DeviceSampleRow greedy = {};
    greedy.top_p = 1;
    greedy.repetition_penalty = 1;
    greedy.num_logprobs = -1;
    const std::vector<cuda::DeviceSampleRow> all(static_cast<size_t>(rows), greedy);
    ASSIGN_OR_RETURN(const cuda::DeviceSampleRow* on_rows,
                     bench_.Upload(memory, std::span<const cuda::DeviceSampleRow>(all)));
    ASSIGN_OR_RETURN(std::byte * sampled,
                     memory.Take(rows * static_cast<int64_t>(sizeof(cuda::DeviceSampledToken))));
    const auto vocabulary = static_cast<int32_t>(logits.shape[1]);
    const size_t bytes = cuda::SampleScratchBytes(rows, vocabulary);
    ASSIGN_OR_RETURN(std::byte * scratch, memory.Take(static_cast<int64_t>(bytes)));
    const cuda::LaunchTarget on = bench_.target();
    RETURN_IF_CUDA_ERROR(cudaMemsetAsync(scratch, 0, bytes, on.stream), "clear");
    const cuda::SampleLaunch launch = {
        .logits = logits.Row<float>(0),
        .row_stride = logits.row_stride,
        .num_rows = rows,
        .vocab = vocabulary,
        .rows = on_rows,
        .token_ids = nullptr,
        .scratch = scratch,
        .sampled = reinterpret_cast<cuda::DeviceSampledToken*>(sampled),
        .top = nullptr};
    const CudaVariant variant = {
        "", [&](int32_t) { return cuda::ToStatus(cuda::Sample(on, launch), "sample"); }};
    ASSIGN_OR_RETURN(const auto times, bench_.Time({&variant, 1}, bench_.options().max_launches));
    return times[0].us;
  }

  absl::StatusOr<CudaTiming> TimeDecode(int32_t batch) {
    constexpr int32_t kWarm = 4;  // as it is, recorded, and then replayed
    std::vector<double> us;
    TensorView logits;
    for (int32_t i = 0; i < kWarm + steps_; ++i) {
      const Clock::time_point start = Clock::now();
      ASSIGN_OR_RETURN(logits, model_.QueueDecode(batch, plan_.depth - 1));
      RETURN_IF_ERROR(model_.Sample(logits));
      if (i >= kWarm) us.push_back(MicrosecondsSince(start));
    }
    const CudaTiming timing = TimingOf(us);
    ASSIGN_OR_RETURN(const double forward, ForwardMicroseconds(batch));
    ASSIGN_OR_RETURN(const double sample, SampleMicroseconds(logits));
    const double gap = std::max(0.0, timing.us - forward - sample);
    bench_.Add({.section = "model",
                .op = "host gap",
                .shape = fmt::format("decode, batch {}", batch),
                .variant = "",
                .timing = {gap, gap, gap},
                .limits = TimeLimits{kHostGapUs, kHostGapUs}});
    return timing;
  }

  // Bytes and FLOPs come with the profile, so the rows of the steps do as well.
  absl::Status Profile(const Timings& prefills, const Timings& decodes) {
    ASSIGN_OR_RETURN(Backend backend, OpenBackend(bench_.options().device, {}));
    EventClock clock(bench_.target().stream);
    ProfilingOps ops(std::move(backend.ops), &clock);
    RETURN_IF_ERROR(model_.ComputeWith(ops));
    for (size_t i = 0; i < plan_.prompts.size(); ++i) {
      if (!prefills[i].ok()) continue;
      const int32_t tokens = plan_.prompts[i];
      const double limit = kPrefillUsPerToken * tokens;
      CudaRow row = {.section = "model",
                     .op = "prefill",
                     .shape = fmt::format("{} tokens", tokens),
                     .variant = "",
                     .timing = *prefills[i],
                     .bound = Bound::kGemm,
                     .limits = TimeLimits{limit, limit}};
      RETURN_IF_ERROR(
          bench_.Tolerate(AddStep(ops, clock, row, [&] { return model_.QueuePrefill(tokens); })));
    }
    for (size_t i = 0; i < plan_.batches.size(); ++i) {
      if (!decodes[i].ok()) continue;
      const int32_t batch = plan_.batches[i];
      CudaRow row = {.section = "model",
                     .op = "decode step",
                     .shape = fmt::format("batch {}, context {}", batch, plan_.depth),
                     .variant = "",
                     .timing = *decodes[i],
                     .bound = Bound::kRead};
      if (batch == 1) row.limits = TimeLimits{kBetaUs, kBetaUs};
      RETURN_IF_ERROR(bench_.Tolerate(AddStep(
          ops, clock, row, [&] { return model_.QueueDecode(batch, plan_.depth - 1).status(); })));
    }
    return absl::OkStatus();
  }

  template <class Queue>
  absl::Status AddStep(ProfilingOps& ops, EventClock& clock, CudaRow row, Queue queue) {
    absl::Status run = KeepBusy();
    if (run.ok()) run = queue();
    run.Update(bench_.stream().Synchronize());
    const auto microseconds = clock.TakeMicroseconds();
    const OpProfile profile = ops.Take();
    run.Update(microseconds.status());
    if (!run.ok()) {
      bench_.Add(row);  // its time was taken before
      return run;
    }
    row.cost = Sum(profile).cost;
    if (row.bound == Bound::kRead && row.limits.has_value()) {
      row.limits = bench_.BoundByMemory(*row.limits, row.cost.bytes);
    }
    bench_.Add(row);
    for (size_t kind = 0; kind < profile.size(); ++kind) {
      if (profile[kind].calls == 0) continue;
      const double us = (*microseconds)[kind];
      const auto op = static_cast<OpKind>(kind);
      const bool large =
          op == OpKind::kGemm || op == OpKind::kAttentionPrefill || op == OpKind::kAttentionDecode;
      bench_.Add({.section = "model ops",
                  .op = std::string(Name(op)),
                  .shape = fmt::format("{}, {}", row.op, row.shape),
                  .variant = fmt::format("{} calls", profile[kind].calls),
                  .timing = {us, us, us},
                  .cost = profile[kind].cost,
                  .bound = large ? row.bound : Bound::kCopy});
    }
    return absl::OkStatus();
  }

  // So that the host is ahead of the device: what is timed must not wait for launches.
  absl::Status KeepBusy() {
    constexpr int64_t kBytes = int64_t{64} << 20;
    const int32_t rounds = bench_.options().scale < 1 ? 1 : 2000;
    if (!busy_.present()) {
      ASSIGN_OR_RETURN(
          busy_, bench_.Normal(busy_memory_, DType::kBF16, {bench_.Scaled(kBytes, 64 << 10) / 2}));
      ASSIGN_OR_RETURN(sink_, bench_.Poisoned(busy_memory_, DType::kF32, {1}));
    }
    for (int32_t i = 0; i < rounds; ++i) {
      RETURN_IF_CUDA_ERROR(
          cuda::ReadStream(bench_.target().stream, bench_.target().num_sms, busy_.data,
                           busy_.rows() * SizeOf(busy_.dtype), static_cast<uint32_t*>(sink_.data)),
          "read");
    }
    return absl::OkStatus();
  }

  CudaBench& bench_;
  CudaModel& model_;
  const Plan& plan_;
  const int32_t steps_;
  CaseMemory busy_memory_{bench_.device()};
  TensorView busy_;
  TensorView sink_;
};

absl::Status Main(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Flags flags, ParseFlags(argc, argv));
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(flags));
  ASSIGN_OR_RETURN(const auto bench, CudaBench::Open(flags.options));
  bench->ReportTo({"cuda_model", flags.commit, flags.json_path});
  RETURN_IF_ERROR(MeasureCeilings(*bench));
  const int32_t prompt = *std::max_element(plan.prompts.begin(), plan.prompts.end());
  const int32_t batch = *std::max_element(plan.batches.begin(), plan.batches.end());
  ASSIGN_OR_RETURN(const auto model,
                   CudaModel::Create(*bench, bench->ops(),
                                     {.config = plan.config,
                                      .max_tokens = std::max(prompt, batch),
                                      .max_sequences = batch,
                                      .max_context_tokens = std::max(prompt, plan.depth),
                                      .max_total_tokens = int64_t{batch} * plan.depth}));
  bench->Describe("shape", fmt::format("{}, {} layers", flags.shape, plan.config.num_layers));
  bench->Describe("weight_bytes", model->weight_bytes());
  RETURN_IF_ERROR(ModelBench(*bench, *model, plan, flags.steps).Run());
  return bench->first_error();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("cuda_model_bench", tandem::Main(argc, argv));
}
