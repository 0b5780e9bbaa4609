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

// Samples on the device. What the rows ask for is uploaded with the step's arrays where it was
// planned, else in a copy of its own; the chosen tokens come back in one copy. Thread: one at a
// time. `device` must outlive it.
class Sampler {
 public:
  explicit Sampler(CudaDevice& device)
      : device_(device),
        staging_(device, 1),
        work_(device, "sample: scratch"),
        results_(device, "sample: results") {}

  // Bytes that a plan within `limits` takes in a staging.
  static size_t PlanBytes(const WorkLimits& limits);
  // Allocates memory for calls within `limits`, but no room to upload rows that were not planned.
  absl::Status Reserve(const WorkLimits& limits);
  // Adds what the rows ask for to `staging`. The plan is empty where their lists are too long for
  // it.
  SamplePlan Plan(std::span<const SampleRow> rows, StepStaging& staging);
  // Samples the rows; returns when args.out is filled.
  absl::Status Sample(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args);

 private:
  // Where the rows and their lists of tokens lie on the device.
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
  Scratch results_;             // on the device: the tokens of the rows, then the alternatives
  DeviceBuffer host_results_;   // the copy of results_ on the host
  size_t max_planned_ids_ = 0;  // token ids that a plan has room for
  std::vector<DeviceSampleRow> rows_;
  std::vector<int32_t> ids_;
  size_t alternatives_ = 0;  // that the rows ask for together
  Described planned_ = {};
};

}  // namespace tandem::cuda
