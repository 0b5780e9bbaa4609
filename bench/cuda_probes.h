#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/dtype.h"

// Kernels that a bench needs beside those it measures: data, what the device can do at best, and
// the distance between two results. All queue on `stream`, none waits.
namespace tandem::cuda {

// A run of `count` elements in device memory.
struct DeviceRun {
  void* data = nullptr;
  DType dtype = DType::kBF16;  // f32 | f16 | bf16 | f8e4m3
  int64_t count = 0;
};

// Values of about a normal distribution of mean 0 and deviation `deviation`, the same for one seed.
cudaError_t FillNormal(cudaStream_t stream, const DeviceRun& run, float deviation, uint64_t seed);

// Reads `bytes` (a multiple of 64 KiB) and keeps nothing; `sink` has one uint32.
cudaError_t ReadStream(cudaStream_t stream, int num_sms, const void* data, int64_t bytes,
                       uint32_t* sink);
// Copies `bytes`, a multiple of 16 KiB.
cudaError_t CopyStream(cudaStream_t stream, int num_sms, void* to, const void* from, int64_t bytes);

// A kernel of one warp that does nothing.
enum class Overlap : uint8_t { kNone, kProgrammatic };
cudaError_t EmptyKernel(cudaStream_t stream, Overlap overlap);

// What one thread block saw of two runs.
struct Distance {
  double squared_difference = 0;
  double squared_reference = 0;
  int64_t not_finite = 0;  // of the result
};
inline constexpr int kDistanceBlocks = 128;

// Compares `result` with `reference`, of equal count; `out` has kDistanceBlocks parts to be added.
cudaError_t Compare(cudaStream_t stream, const DeviceRun& result, const DeviceRun& reference,
                    Distance* out);

}  // namespace tandem::cuda
