#pragma once

#include <cstdint>

#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sampling/sample_row.cuh"
#include "kernels/cuda/sampling/sample_workspace.cuh"

// What a request does to its row before a token is chosen: biases are added to the logits, and its
// exclusions and penalties are noted in ScoredRow::counts. All threads of the block call these
// together, with the same arguments.

namespace tandem::cuda {

// ---- biases ----

__device__ __forceinline__ int32_t NumBiases(const DeviceSampleRow& row) {
  return (row.ids_end - row.biases_begin) / 2;
}

// Adds the biases to the row in place. A logit that is not finite stays what it is.
__device__ inline void AddBiases(SampleWorkspace& shared, const SampleLaunch& launch,
                                 const DeviceSampleRow& row, float* logits) {
  const int32_t* entries = launch.token_ids + row.biases_begin;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < NumBiases(row);
       i += static_cast<int32_t>(blockDim.x)) {
    float& logit = logits[entries[2 * i]];
    shared.unbiased[i] = logit;
    logit += __int_as_float(entries[2 * i + 1]);
  }
  __syncthreads();
}

__device__ inline void RemoveBiases(const SampleWorkspace& shared, const SampleLaunch& launch,
                                    const DeviceSampleRow& row, float* logits) {
  __syncthreads();
  const int32_t* entries = launch.token_ids + row.biases_begin;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < NumBiases(row);
       i += static_cast<int32_t>(blockDim.x)) {
    logits[entries[2 * i]] = shared.unbiased[i];
  }
  __syncthreads();
}

// ---- exclusions ----

__device__ __forceinline__ bool HasAllowed(const DeviceSampleRow& row) {
  return row.allowed_begin < row.biases_begin;
}

__device__ __forceinline__ bool HasExclusions(const DeviceSampleRow& row) {
  return row.excluded_begin < row.biases_begin;
}

// Marks the tokens that the row excludes; comes before CountTokens.
__device__ inline void MarkExcluded(const SampleLaunch& launch, const DeviceSampleRow& row,
                                    int32_t* counts) {
  const auto first = static_cast<int32_t>(threadIdx.x);
  const auto step = static_cast<int32_t>(blockDim.x);
  if (HasAllowed(row)) {
    for (int32_t id = first; id < launch.vocab; id += step) counts[id] = kExcluded;
    __syncthreads();
    for (int32_t i = row.allowed_begin + first; i < row.biases_begin; i += step) {
      counts[launch.token_ids[i]] = 0;
    }
    __syncthreads();
  }
  for (int32_t i = row.excluded_begin + first; i < row.allowed_begin; i += step) {
    counts[launch.token_ids[i]] = kExcluded;
  }
  __syncthreads();
}

// ---- penalties ----

__device__ __forceinline__ bool HasPenalties(const DeviceSampleRow& row) {
  return row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
}

// Counts how often each token is in the output, or marks that it is in the prompt alone.
__device__ inline void CountTokens(const SampleLaunch& launch, const DeviceSampleRow& row,
                                   int32_t* counts) {
  const auto first = static_cast<int32_t>(threadIdx.x);
  const auto step = static_cast<int32_t>(blockDim.x);
  for (int32_t i = row.output_begin + first; i < row.excluded_begin; i += step) {
    atomicAdd(&counts[launch.token_ids[i]], 1);
  }
  __syncthreads();
  for (int32_t i = row.prompt_begin + first; i < row.output_begin; i += step) {
    atomicCAS(&counts[launch.token_ids[i]], 0, kPromptOnly);
  }
  __syncthreads();
}

__device__ inline void ForgetTokens(const SampleLaunch& launch, const DeviceSampleRow& row,
                                    int32_t* counts) {
  __syncthreads();
  const auto first = static_cast<int32_t>(threadIdx.x);
  const auto step = static_cast<int32_t>(blockDim.x);
  if (HasAllowed(row)) {
    for (int32_t id = first; id < launch.vocab; id += step) counts[id] = 0;
    return;
  }
  for (int32_t i = row.prompt_begin + first; i < row.allowed_begin; i += step) {
    counts[launch.token_ids[i]] = 0;
  }
}

}  // namespace tandem::cuda
