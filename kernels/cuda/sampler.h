#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/call_staging.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/scratch.h"
#include "kernels/op_args.h"
#include "kernels/ops.h"

namespace tandem::cuda {

// Samples on the device: what the rows ask for goes up in one copy, the chosen tokens come back in
// one. Thread: one at a time. `device` must outlive it.
class Sampler {
 public:
  explicit Sampler(CudaDevice& device)
      : device_(device),
        staging_(device, 1),
        work_(device, "sample: scratch"),
        results_(device, "sample: results") {}

  absl::Status Reserve(const WorkLimits& limits);
  // Returns when args.out is filled.
  absl::Status Sample(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args);

 private:
  // Describes the rows in rows_ and ids_; returns how many alternatives they ask for together.
  size_t Describe(const SampleArgs& args);
  absl::Status Launch(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args);
  absl::Status Collect(const SampleArgs& args) const;

  CudaDevice& device_;
  CallStaging staging_;
  Scratch work_;
  Scratch results_;            // the tokens of the rows, then the alternatives
  DeviceBuffer host_results_;  // the same
  std::vector<DeviceSampleRow> rows_;
  std::vector<int32_t> ids_;
};

}  // namespace tandem::cuda
