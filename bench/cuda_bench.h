#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "bench/cuda_probes.h"
#include "bench/verdict.h"
#include "kernels/cuda/device/device.h"
#include "kernels/op_cost.h"
#include "kernels/registry.h"
#include "nlohmann/json.hpp"

namespace tandem {

struct CudaBenchOptions {
  std::string device = "cuda:0";
  std::string filter;  // only the rows whose "op shape variant" holds it
  double scale = 1;    // of contexts, rows and bytes; below 1 times mean nothing and get no verdict
  int32_t repeats = 50;
  int32_t max_launches = 20;  // of one graph, unless more are needed to keep data out of the cache
};

// What the device can do at best; 0: not measured.
struct CudaCeilings {
  double read_tbps = 0;
  double copy_tbps = 0;  // read and written
  double gemm_tflops = 0;
};

// The rate that bounds an op.
enum class Bound : uint8_t { kLatency, kRead, kCopy, kGemm };

// One thing to be timed: `queue` puts its i-th launch on the bench's stream and can be recorded.
struct CudaVariant {
  std::string name;
  std::function<absl::Status(int32_t launch)> queue;
};

struct CudaTiming {
  double us = 0;  // of one launch: the median of the replays
  double best_us = 0;
  double worst_us = 0;  // nine in ten are faster
};

// The median, the least and the ninth decile. At least one value.
CudaTiming TimingOf(std::vector<double> us);

// A point of a stream whose time is kept. The stream's device is the calling thread's.
class TimedEvent {
 public:
  TimedEvent() = default;
  TimedEvent(TimedEvent&& other) noexcept { std::swap(handle_, other.handle_); }
  ~TimedEvent();

  absl::Status Record(cudaStream_t stream);
  // Both must have come to pass.
  absl::StatusOr<double> MicrosecondsSince(const TimedEvent& start) const;

 private:
  cudaEvent_t handle_ = nullptr;
};

// One line of the table.
struct CudaRow {
  std::string section;
  std::string op;
  std::string shape;
  std::string variant;
  CudaTiming timing;
  OpCost cost;
  Bound bound = Bound::kLatency;
  std::optional<TimeLimits> limits;
  std::optional<double> error;       // |result - reference| / |reference|
  std::optional<double> over_first;  // time over that of the first variant, timed turn by turn
};

struct CudaReport {
  std::string kind;
  std::string commit;
  std::string path;
};

// Device memory of one case, freed with it.
class CaseMemory {
 public:
  explicit CaseMemory(Device& device) : device_(device) {}

  absl::StatusOr<std::byte*> Take(int64_t bytes);

 private:
  Device& device_;
  std::vector<DeviceBuffer> buffers_;
};

// A device, what it measures with, and the table that comes of it.
class CudaBench {
 public:
  static absl::StatusOr<std::unique_ptr<CudaBench>> Open(const CudaBenchOptions& options);

  const CudaBenchOptions& options() const { return options_; }
  Device& device() { return *backend_.device; }
  Ops& ops() { return *backend_.ops; }
  Stream& stream() { return *stream_; }
  // With the stream set.
  const cuda::LaunchTarget& target() const { return target_; }
  int64_t l2_bytes() const { return l2_bytes_; }
  const CudaCeilings& ceilings() const { return ceilings_; }
  void set_ceilings(const CudaCeilings& ceilings);

  // `h200`: what is asked of an H200 for an op that its memory bounds. On a GPU that reads more
  // slowly, by as much longer as `bytes` take there at best.
  TimeLimits BoundByMemory(const TimeLimits& h200, double bytes) const;

  // n * scale, a multiple of `step` and at least that.
  int64_t Scaled(int64_t n, int64_t step = 1) const;
  // How many sets of data, each read by one launch, together are four times the cache; 4 at least.
  int32_t SetsOf(double bytes) const;
  // Launches of one graph: each set once at least, and a stretch that is long beside a clock's
  // tick.
  int32_t LaunchesOf(double bytes) const;
  bool Wanted(const std::string& op, const std::string& shape) const;

  absl::StatusOr<TensorView> Normal(CaseMemory& memory, DType dtype,
                                    std::initializer_list<int64_t> shape, float deviation = 1);
  // NaN in every element.
  absl::StatusOr<TensorView> Poisoned(CaseMemory& memory, DType dtype,
                                      std::initializer_list<int64_t> shape);
  absl::Status Poison(const TensorView& tensor);
  template <class T>
  absl::StatusOr<const T*> Upload(CaseMemory& memory, std::span<const T> values) {
    ASSIGN_OR_RETURN(const std::byte* data, UploadBytes(memory, std::as_bytes(values)));
    return reinterpret_cast<const T*>(data);
  }

  // Records `launches` launches of each variant as a graph and replays the graphs turn by turn.
  absl::StatusOr<std::vector<CudaTiming>> Time(std::span<const CudaVariant> variants,
                                               int32_t launches);
  // Relative distance of two contiguous tensors; INTERNAL when `result` has an element that is not
  // finite.
  absl::StatusOr<double> Error(const TensorView& result, const TensorView& reference);

  // Writes the report, too: what was measured is kept when the run is ended.
  void Add(const CudaRow& row);
  // Takes the status of one case: prints its failure and lets the others run, unless the device
  // itself has failed.
  absl::Status Tolerate(absl::Status status);
  // The first failure that Tolerate let pass.
  const absl::Status& first_error() const { return first_error_; }
  // One more fact about what is measured, for the report.
  void Describe(std::string key, nlohmann::json value) {
    facts_[std::move(key)] = std::move(value);
  }
  // Where Add leaves all rows so far, with the machine, the ceilings and the date; nowhere without
  // a path.
  void ReportTo(CudaReport report) { report_ = std::move(report); }

 private:
  explicit CudaBench(const CudaBenchOptions& options) : options_(options) {}
  absl::StatusOr<const std::byte*> UploadBytes(CaseMemory& memory,
                                               std::span<const std::byte> bytes);
  double CeilingShare(const CudaRow& row) const;
  nlohmann::json JsonOf(const CudaRow& row) const;
  absl::Status WriteReport() const;

  const CudaBenchOptions options_;
  Backend backend_;
  std::unique_ptr<Stream> stream_;
  cuda::LaunchTarget target_;
  int64_t l2_bytes_ = 0;
  bool is_h200_ = false;
  nlohmann::json facts_ = nlohmann::json::object();
  CudaCeilings ceilings_;
  uint64_t seed_ = 0;
  CudaReport report_;
  std::vector<CudaRow> rows_;
  absl::Status first_error_;
};

}  // namespace tandem
