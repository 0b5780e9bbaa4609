#include "bench/cuda_probes.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
__device__ __forceinline__ uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The sum of eight uniform bytes, moved to mean 0 and deviation 1.
__device__ __forceinline__ float Normal(uint64_t bits) {
  constexpr uint64_t kEvenBytes = 0x00ff00ff00ff00ffull;
  const uint64_t pairs = (bits & kEvenBytes) + ((bits >> 8) & kEvenBytes);
  const auto sum = static_cast<int>((pairs * 0x0001000100010001ull) >> 48);
  constexpr float kMean = 8 * 127.5f;
  constexpr float kInverseDeviation = 1 / 209.0f;  // sqrt(8 * (256^2 - 1) / 12)
  return (static_cast<float>(sum) - kMean) * kInverseDeviation;
}

__device__ __forceinline__ void Write(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[i] = value;
      break;
    case DType::kF16:
      static_cast<uint16_t*>(data)[i] = ptx::ToF16(value);
      break;
    case DType::kF8E4M3:
      static_cast<uint8_t*>(data)[i] = ptx::ToE4m3(value);
      break;
    default:
      static_cast<uint16_t*>(data)[i] = ptx::ToBf16(value);
  }
}

__device__ __forceinline__ float Read(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kF16:
      return ptx::FromF16(static_cast<const uint16_t*>(data)[i]);
    case DType::kF8E4M3:
      return ptx::FromE4m3(static_cast<const uint8_t*>(data)[i]);
    default:
      return ptx::FromBf16(static_cast<const uint16_t*>(data)[i]);
  }
}

__global__ void FillNormalKernel(DeviceRun run, float deviation, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < run.count; i += step) {
    const uint64_t bits = Mix(seed + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(i + 1));
    Write(run.data, run.dtype, i, deviation * Normal(bits));
  }
}

// Four loads of 16 bytes in flight per thread.
__global__ void __launch_bounds__(kThreads)
    ReadStreamKernel(const uint4* data, int64_t vectors, uint32_t* sink) {
  const int64_t step = int64_t{gridDim.x} * kThreads * 4;
  uint32_t seen = 0;
  for (int64_t at = int64_t{blockIdx.x} * kThreads * 4 + threadIdx.x; at < vectors; at += step) {
    const uint4 a = ptx::LoadStreaming(data + at);
    const uint4 b = ptx::LoadStreaming(data + at + kThreads);
    const uint4 c = ptx::LoadStreaming(data + at + 2 * kThreads);
    const uint4 d = ptx::LoadStreaming(data + at + 3 * kThreads);
    seen |= a.x ^ b.y ^ c.z ^ d.w ^ a.z ^ b.w ^ c.x ^ d.y;
    seen |= a.y ^ b.x ^ c.w ^ d.z ^ a.w ^ b.z ^ c.y ^ d.x;
  }
  // Never so with data of both signs, but no compiler knows.
  if (seen == 0x5bd1e995u) *sink = seen;
}

__global__ void __launch_bounds__(kThreads)
    CopyStreamKernel(uint4* to, const uint4* from, int64_t vectors) {
  const int64_t step = int64_t{gridDim.x} * kThreads * 4;
  for (int64_t at = int64_t{blockIdx.x} * kThreads * 4 + threadIdx.x; at < vectors; at += step) {
    uint4 loaded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) loaded[i] = ptx::LoadStreaming(from + at + i * kThreads);
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::StoreStreaming(to + at + i * kThreads, loaded[i]);
  }
}

__global__ void EmptyKernelBody(Overlap overlap) {
  if (overlap == Overlap::kProgrammatic) {
    ptx::GridDependencyLaunch();
    ptx::GridDependencyWait();
  }
}

__global__ void __launch_bounds__(kThreads)
    CompareKernel(DeviceRun result, DeviceRun reference, Distance* out) {
  __shared__ double difference[kThreads];
  __shared__ double magnitude[kThreads];
  __shared__ int not_finite[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  difference[thread] = 0;
  magnitude[thread] = 0;
  not_finite[thread] = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + thread; i < result.count; i += step) {
    const float value = Read(result.data, result.dtype, i);
    const float expected = Read(reference.data, reference.dtype, i);
    if (!(fabsf(value) <= 3.4e38f)) {
      ++not_finite[thread];
      continue;
    }
    const double d = static_cast<double>(value) - static_cast<double>(expected);
    difference[thread] += d * d;
    magnitude[thread] += static_cast<double>(expected) * static_cast<double>(expected);
  }
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      difference[thread] += difference[thread + half];
      magnitude[thread] += magnitude[thread + half];
      not_finite[thread] += not_finite[thread + half];
    }
  }
  if (thread == 0) out[blockIdx.x] = {difference[0], magnitude[0], not_finite[0]};
}

}  // namespace

cudaError_t FillNormal(cudaStream_t stream, const DeviceRun& run, float deviation, uint64_t seed) {
  constexpr int64_t kMaxBlocks = 8192;
  const int64_t wanted = (run.count + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  return Launch(FillNormalKernel, {.grid = dim3(blocks), .block = dim3(kThreads)}, stream, run,
                deviation, seed);
}

cudaError_t ReadStream(cudaStream_t stream, int num_sms, const void* data, int64_t bytes,
                       uint32_t* sink) {
  const auto blocks = static_cast<unsigned>(num_sms * 8);
  return Launch(ReadStreamKernel, {.grid = dim3(blocks), .block = dim3(kThreads)}, stream,
                static_cast<const uint4*>(data), bytes / static_cast<int64_t>(sizeof(uint4)), sink);
}

cudaError_t CopyStream(cudaStream_t stream, int num_sms, void* to, const void* from,
                       int64_t bytes) {
  const auto blocks = static_cast<unsigned>(num_sms * 8);
  return Launch(CopyStreamKernel, {.grid = dim3(blocks), .block = dim3(kThreads)}, stream,
                static_cast<uint4*>(to), static_cast<const uint4*>(from),
                bytes / static_cast<int64_t>(sizeof(uint4)));
}

cudaError_t EmptyKernel(cudaStream_t stream, Overlap overlap) {
  return Launch(
      EmptyKernelBody,
      {.grid = dim3(1), .block = dim3(32), .after_previous = overlap == Overlap::kProgrammatic},
      stream, overlap);
}

cudaError_t Compare(cudaStream_t stream, const DeviceRun& result, const DeviceRun& reference,
                    Distance* out) {
  return Launch(CompareKernel, {.grid = dim3(kDistanceBlocks), .block = dim3(kThreads)}, stream,
                result, reference, out);
}

}  // namespace tandem::cuda
