#include "bench/cuda_bench.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int32_t kMinSets = 4;
constexpr int32_t kMaxSets = 64;
constexpr double kMaxError = 1e-2;    // beyond rounding: the result is wrong, however fast it came
constexpr double kGraphBytes = 16e9;  // that the launches of one graph read, about
constexpr double kH200ReadTbps = 4.37;  // what the limits of memory-bound ops were derived from

// Replays of one graph.
struct Replays {
  std::unique_ptr<Graph> graph;
  std::vector<TimedEvent> starts;
  std::vector<TimedEvent> ends;

  absl::StatusOr<CudaTiming> Timing(int32_t launches) const {
    std::vector<double> us;
    for (size_t i = 0; i < starts.size(); ++i) {
      ASSIGN_OR_RETURN(const double total, ends[i].MicrosecondsSince(starts[i]));
      us.push_back(total / launches);
    }
    return TimingOf(std::move(us));
  }
};

std::string_view Name(Bound bound) {
  switch (bound) {
    case Bound::kLatency:
      return "";
    case Bound::kRead:
      return "share_of_read_ceiling";
    case Bound::kCopy:
      return "share_of_copy_ceiling";
    case Bound::kGemm:
      return "share_of_gemm_ceiling";
  }
  return "";
}

// In units of 1e12 per second.
double TeraRate(double amount, double us) { return us > 0 ? amount / us * 1e-6 : 0; }

std::string Now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

Json MachineOf(const cudaDeviceProp& properties) {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return {{"gpu", properties.name},
          {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
          {"sms", properties.multiProcessorCount},
          {"memory_bytes", properties.totalGlobalMem},
          {"l2_bytes", properties.l2CacheSize},
          {"driver_cuda", driver},
          {"runtime_cuda", runtime}};
}

}  // namespace

TimedEvent::~TimedEvent() {
  if (handle_ != nullptr) cudaEventDestroy(handle_);
}

absl::Status TimedEvent::Record(cudaStream_t stream) {
  if (handle_ == nullptr) {
    RETURN_IF_CUDA_ERROR(cudaEventCreate(&handle_), "make an event");
  }
  return cuda::ToStatus(cudaEventRecord(handle_, stream), "record an event");
}

absl::StatusOr<double> TimedEvent::MicrosecondsSince(const TimedEvent& start) const {
  float milliseconds = 0;
  RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, start.handle_, handle_),
                       "read the time between events");
  return double{milliseconds} * 1e3;
}

CudaTiming TimingOf(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us[us.size() * 9 / 10]};
}

absl::StatusOr<std::byte*> CaseMemory::Take(int64_t bytes) {
  ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(static_cast<size_t>(bytes)));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

absl::StatusOr<std::unique_ptr<CudaBench>> CudaBench::Open(const CudaBenchOptions& options) {
  std::unique_ptr<CudaBench> bench(new CudaBench(options));
  if (!options.device.starts_with("cuda")) {
    return InvalidArgument(
        "--device {}: this bench is of CUDA; bench/kernel_bench.cc has the CPU's", options.device);
  }
  ASSIGN_OR_RETURN(bench->backend_, OpenBackend(options.device, {}));
  ASSIGN_OR_RETURN(bench->stream_, bench->device().NewStream());
  const auto& device = static_cast<const cuda::CudaDevice&>(bench->device());
  bench->target_ = device.target();
  bench->target_.stream = static_cast<const cuda::CudaStream&>(*bench->stream_).handle();
  int index = 0;
  cudaDeviceProp properties = {};
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&index), "ask for the device");
  RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, index), "ask for the device");
  bench->l2_bytes_ = properties.l2CacheSize;
  bench->is_h200_ = std::string_view(properties.name).find("H200") != std::string_view::npos;
  bench->Describe("machine", MachineOf(properties));
  return bench;
}

void CudaBench::set_ceilings(const CudaCeilings& ceilings) {
  ceilings_ = ceilings;
  if (is_h200_ || ceilings.read_tbps <= 0 || ceilings.read_tbps >= kH200ReadTbps) return;
  Describe("scaled_limits",
           fmt::format("those of an H200 that memory bounds, {:.2f} TB/s there, {:.2f} here",
                       kH200ReadTbps, ceilings.read_tbps));
}

TimeLimits CudaBench::BoundByMemory(const TimeLimits& h200, double bytes) const {
  if (!facts_.contains("scaled_limits")) return h200;
  const double longer_us = bytes * (1 / ceilings_.read_tbps - 1 / kH200ReadTbps) * 1e-6;
  return {h200.target_us + longer_us, h200.fail_above_us + longer_us};
}

int64_t CudaBench::Scaled(int64_t n, int64_t step) const {
  const auto scaled = std::llround(static_cast<double>(n) * options_.scale);
  return std::max<int64_t>(1, scaled / step) * step;
}

int32_t CudaBench::SetsOf(double bytes) const {
  const double sets = std::ceil(4 * static_cast<double>(l2_bytes_) * options_.scale / bytes);
  return static_cast<int32_t>(std::clamp<double>(sets, kMinSets, kMaxSets));
}

int32_t CudaBench::LaunchesOf(double bytes) const {
  const auto most = static_cast<int32_t>(std::max(1.0, kGraphBytes / bytes));
  const int32_t usual = std::min(options_.max_launches, std::max(most, kMinSets));
  return options_.scale < 1 ? options_.max_launches : std::max(usual, SetsOf(bytes));
}

bool CudaBench::Wanted(const std::string& op, const std::string& shape) const {
  return fmt::format("{} {}", op, shape).find(options_.filter) != std::string::npos;
}

absl::StatusOr<TensorView> CudaBench::Poisoned(CaseMemory& memory, DType dtype,
                                               std::initializer_list<int64_t> shape) {
  const int64_t count =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
  ASSIGN_OR_RETURN(std::byte * data, memory.Take(count * SizeOf(dtype)));
  const TensorView tensor(data, dtype, shape);
  RETURN_IF_ERROR(Poison(tensor));
  return tensor;
}

absl::Status CudaBench::Poison(const TensorView& tensor) {
  const int64_t bytes = tensor.rows() * tensor.RowElements() * SizeOf(tensor.dtype);
  // All bits set is a NaN of every floating-point type here.
  return cuda::ToStatus(
      cudaMemsetAsync(tensor.data, 0xff, static_cast<size_t>(bytes), target_.stream), "poison");
}

absl::StatusOr<TensorView> CudaBench::Normal(CaseMemory& memory, DType dtype,
                                             std::initializer_list<int64_t> shape,
                                             float deviation) {
  ASSIGN_OR_RETURN(const TensorView tensor, Poisoned(memory, dtype, shape));
  const cuda::DeviceRun run = {tensor.data, dtype, tensor.rows() * tensor.RowElements()};
  RETURN_IF_CUDA_ERROR(cuda::FillNormal(target_.stream, run, deviation, ++seed_),
                       "fill with random values");
  return tensor;
}

absl::StatusOr<const std::byte*> CudaBench::UploadBytes(CaseMemory& memory,
                                                        std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(std::byte * data, memory.Take(static_cast<int64_t>(bytes.size())));
  RETURN_IF_ERROR(stream_->Copy({data, bytes.size()}, bytes));
  RETURN_IF_ERROR(stream_->Synchronize());
  return data;
}

absl::StatusOr<std::vector<CudaTiming>> CudaBench::Time(std::span<const CudaVariant> variants,
                                                        int32_t launches) {
  std::vector<Replays> all(variants.size());
  for (size_t v = 0; v < variants.size(); ++v) {
    // Once unrecorded: the first launch of a kernel loads it, and libraries make their plans.
    RETURN_IF_ERROR(variants[v].queue(0));
    RETURN_IF_ERROR(stream_->Synchronize());
    RETURN_IF_ERROR(stream_->BeginRecording());
    absl::Status queued;
    for (int32_t i = 0; i < launches && queued.ok(); ++i) queued = variants[v].queue(i);
    auto graph = stream_->EndRecording();
    RETURN_IF_ERROR(queued);
    RETURN_IF_ERROR(graph.status());
    all[v].graph = *std::move(graph);
    RETURN_IF_ERROR(stream_->Launch(*all[v].graph));
  }
  // Queued without a pause, so that the host's part of a launch is hidden behind the graph before.
  for (int32_t repeat = 0; repeat < options_.repeats; ++repeat) {
    for (Replays& replays : all) {
      RETURN_IF_ERROR(replays.starts.emplace_back().Record(target_.stream));
      RETURN_IF_ERROR(stream_->Launch(*replays.graph));
      RETURN_IF_ERROR(replays.ends.emplace_back().Record(target_.stream));
    }
  }
  RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<CudaTiming> timings;
  for (const Replays& replays : all) {
    ASSIGN_OR_RETURN(const CudaTiming timing, replays.Timing(launches));
    timings.push_back(timing);
  }
  return timings;
}

absl::StatusOr<double> CudaBench::Error(const TensorView& result, const TensorView& reference) {
  CaseMemory memory(device());
  std::vector<cuda::Distance> parts(cuda::kDistanceBlocks);
  const auto bytes = std::as_writable_bytes(std::span(parts));
  ASSIGN_OR_RETURN(std::byte * data, memory.Take(static_cast<int64_t>(bytes.size())));
  const auto run = [](const TensorView& tensor) {
    return cuda::DeviceRun{tensor.data, tensor.dtype, tensor.rows() * tensor.RowElements()};
  };
  RETURN_IF_CUDA_ERROR(cuda::Compare(target_.stream, run(result), run(reference),
                                     reinterpret_cast<cuda::Distance*>(data)),
                       "compare");
  RETURN_IF_ERROR(stream_->Copy(bytes, {data, bytes.size()}));
  RETURN_IF_ERROR(stream_->Synchronize());
  cuda::Distance sum;
  for (const cuda::Distance& part : parts) {
    sum.squared_difference += part.squared_difference;
    sum.squared_reference += part.squared_reference;
    sum.not_finite += part.not_finite;
  }
  if (sum.not_finite > 0) {
    return Internal("{} elements of a result are not finite: unwritten, or computed wrong",
                    sum.not_finite);
  }
  return std::sqrt(sum.squared_difference / sum.squared_reference);
}

double CudaBench::CeilingShare(const CudaRow& row) const {
  const double tbps = TeraRate(row.cost.bytes, row.timing.us);
  const auto share = [](double rate, double ceiling) { return ceiling > 0 ? rate / ceiling : 0; };
  switch (row.bound) {
    case Bound::kLatency:
      return 0;
    case Bound::kRead:
      return share(tbps, ceilings_.read_tbps);
    case Bound::kCopy:
      return share(tbps, ceilings_.copy_tbps);
    case Bound::kGemm:
      return share(TeraRate(row.cost.flops, row.timing.us), ceilings_.gemm_tflops);
  }
  return 0;
}

Json CudaBench::JsonOf(const CudaRow& row) const {
  const double us = row.timing.us;
  Json json = {{"section", row.section},
               {"op", row.op},
               {"shape", row.shape},
               {"variant", row.variant},
               {"us", us},
               {"best_us", row.timing.best_us},
               {"worst_us", row.timing.worst_us},
               {"bytes", row.cost.bytes},
               {"flops", row.cost.flops},
               {"tbytes_per_s", TeraRate(row.cost.bytes, us)},
               {"tflops", TeraRate(row.cost.flops, us)}};
  if (const double share = CeilingShare(row); share > 0) json[std::string(Name(row.bound))] = share;
  if (row.error.has_value()) json["error"] = *row.error;
  if (row.over_first.has_value()) json["over_first"] = *row.over_first;
  if (row.error.value_or(0) > kMaxError) {
    json["verdict"] = "wrong";
  } else if (row.limits.has_value() && options_.scale >= 1) {
    json["target_us"] = row.limits->target_us;
    json["fail_above_us"] = row.limits->fail_above_us;
    json["verdict"] = Verdict(us, *row.limits);
  }
  return json;
}

void CudaBench::Add(const CudaRow& row) {
  rows_.push_back(row);
  if (row.error.value_or(0) > kMaxError) {
    first_error_.Update(Internal("{} {} {}: the result is off by {:.1e}", row.op, row.shape,
                                 row.variant, *row.error));
  }
  const Json json = JsonOf(row);
  fmt::print("{:<18}{:<34}{:<16}{:>10.2f} us{:>8.3f} TB/s{:>9.1f} TFLOP/s{:>5.0f}%", row.op,
             row.shape, row.variant, row.timing.us, json["tbytes_per_s"].get<double>(),
             json["tflops"].get<double>(), 100 * CeilingShare(row));
  if (row.over_first.has_value()) fmt::print("  x{:.2f}", *row.over_first);
  if (row.error.has_value()) fmt::print("  error {:.1e}", *row.error);
  if (json.contains("verdict")) fmt::print("  {}", json["verdict"].get<std::string>());
  if (json.contains("target_us")) {
    fmt::print(" (target {:.1f}, fails above {:.1f})", row.limits->target_us,
               row.limits->fail_above_us);
  }
  fmt::print("\n");
  std::fflush(stdout);
  first_error_.Update(WriteReport());
}

absl::Status CudaBench::Tolerate(absl::Status status) {
  if (status.ok()) return status;
  fmt::print(stderr, "FAILED: {}\n", status.ToString());
  first_error_.Update(status);
  return absl::IsUnavailable(status) ? status : absl::OkStatus();
}

absl::Status CudaBench::WriteReport() const {
  if (report_.path.empty()) return absl::OkStatus();
  Json report = facts_;
  report["kind"] = report_.kind;
  report["date"] = Now();
  report["commit"] = report_.commit;
  report["repeats"] = options_.repeats;
  report["scale"] = options_.scale;
  report["ceilings"] = {{"read_tbytes_per_s", ceilings_.read_tbps},
                        {"copy_tbytes_per_s", ceilings_.copy_tbps},
                        {"gemm_tflops", ceilings_.gemm_tflops}};
  report["results"] = Json::array();
  for (const CudaRow& row : rows_) report["results"].push_back(JsonOf(row));
  std::ofstream file(report_.path);
  file << report.dump(1) << "\n";
  return file.good() ? absl::OkStatus() : FailedPrecondition("{}: cannot be written", report_.path);
}

}  // namespace tandem
