#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/call_staging.h"
#include "kernels/cuda/memory/scratch.h"
#include "kernels/op_args.h"
#include "kernels/ops.h"

namespace tandem::cuda {

// Samples on the device: what the rows ask for goes up with the step's arrays where it was planned,
// else in a copy of its own; the chosen tokens come back in one. Thread: one at a time. `device`
// must outlive it.
class Sampler {
 public:
  explicit Sampler(CudaDevice& device)
      : device_(device),
        staging_(device, 1),
        work_(device, "sample: scratch"),
        results_(device, "sample: results") {}

  // Bytes that a plan within `limits` takes in a staging.
  static size_t PlanBytes(const WorkLimits& limits);
  // Without room to bring rows that were not planned.
  absl::Status Reserve(const WorkLimits& limits);
  // An empty plan where the rows' lists are too long for it.
  SamplePlan Plan(std::span<const SampleRow> rows, StepStaging& staging);
  // Returns when args.out is filled.
  absl::Status Sample(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args);

 private:
  // The rows on the device.
  struct Described {
    const DeviceSampleRow* rows;
    const int32_t* ids;
  };

  // Describes the rows in rows_, ids_ and alternatives_.
  void Describe(std::span<const SampleRow> rows);
  absl::Status Launch(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args);
  absl::Status Collect(const SampleArgs& args) const;

  CudaDevice& device_;
  CallStaging staging_;
  Scratch work_;
  Scratch results_;             // the tokens of the rows, then the alternatives
  DeviceBuffer host_results_;   // the same
  size_t max_planned_ids_ = 0;  // that a plan has room for
  std::vector<DeviceSampleRow> rows_;
  std::vector<int32_t> ids_;
  size_t alternatives_ = 0;  // that the rows ask for together
  Described planned_ = {};
};

}  // namespace tandem::cuda
