#pragma once

#include <cstdint>

#include "base/token_bias.h"
#include "kernels/cuda/sampling/sample_cut.cuh"

namespace tandem::cuda {

// The shared memory of a thread block that samples a row.
struct SampleWorkspace {
  CutWorkspace cut;
  uint64_t best_of_warp[kMaxSampleThreads / 32];
  float highest_of_warp[kMaxSampleThreads / 32];
  bool finite_in_warp[kMaxSampleThreads / 32];
  uint64_t uniform_mass;
  int32_t chosen;
  uint32_t num_collected;
  float unbiased[kMaxLogitBiases];  // the logits that biases were added to
};

}  // namespace tandem::cuda
