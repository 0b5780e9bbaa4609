// What the emulated schedule finds: races, deadlocks, divergence, writes past the end.
#include <cuda_runtime.h>

#include <algorithm>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/simt/device_buffer.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

using tandem::Launch;
namespace ptx = tandem::ptx;

// Reverses the block's threads through shared memory.
template <bool kSynchronised>
__global__ void Reverse(float* out) {
  auto* smem = ptx::DynamicShared<float>();
  smem[threadIdx.x] = static_cast<float>(threadIdx.x);
  if constexpr (kSynchronised) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = smem[blockDim.x - 1 - threadIdx.x];
}

// How many of 20 seeds gave a wrong result.
int WrongSeeds(void (*kernel)(float*), int threads) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetSeed(seed);
    DeviceArray<float> out(2 * threads);
    EXPECT_EQ(Launch(kernel, {dim3(2), dim3(threads), threads * sizeof(float)}, nullptr, out.get()),
              cudaSuccess);
    bool right = true;
    const std::vector<float> result = out.Read();
    for (int i = 0; i < 2 * threads; ++i) {
      right = right && result[i] == static_cast<float>(threads - 1 - i % threads);
    }
    wrong += right ? 0 : 1;
  }
  return wrong;
}

TEST(Schedule, AMissingBarrierShowsAndAPresentOneHolds) {
  EXPECT_EQ(WrongSeeds(Reverse<true>, 1024), 0);
  EXPECT_EQ(WrongSeeds(Reverse<true>, 96), 0);
  EXPECT_GT(WrongSeeds(Reverse<false>, 96), 10);
}

// The second write of a ring of one slot races with the reads of the first.
template <bool kSynchronised>
__global__ void ReuseSlot(float* out, const float* in) {
  auto* slot = ptx::DynamicShared<float>();
  float sum = 0;
  for (int step = 0; step < 2; ++step) {
    ptx::CpAsync16(slot + threadIdx.x * 4, in + step * 512 + threadIdx.x * 4);
    ptx::CpAsyncCommit();
    ptx::CpAsyncWait<0>();
    __syncthreads();
    sum += slot[511 - threadIdx.x * 4];
    if constexpr (kSynchronised) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

int WrongReuse(void (*kernel)(float*, const float*)) {
  int wrong = 0;
  std::vector<float> values(1024, 1.0f);
  std::fill(values.begin() + 512, values.end(), 2.0f);
  DeviceArray<float> in(values);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetSeed(seed);
    DeviceArray<float> out(128);
    EXPECT_EQ(Launch(kernel, {dim3(1), dim3(128), 2048}, nullptr, out.get(), in.get()),
              cudaSuccess);
    bool right = true;
    for (float sum : out.Read()) right = right && sum == 3.0f;
    wrong += right ? 0 : 1;
  }
  return wrong;
}

TEST(Schedule, ACopyIntoASlotStillReadShows) {
  EXPECT_EQ(WrongReuse(ReuseSlot<true>), 0);
  EXPECT_GT(WrongReuse(ReuseSlot<false>), 5);
}

#if defined(SIMT_SHARED_SECTION)
__global__ void ReadsWhatItDidNotWrite(float* out) {
  __shared__ float value;
  if (threadIdx.x == 0) out[blockIdx.x] = value;
  value = 1;
}

TEST(Schedule, StaticSharedMemoryStartsAsNaN) {
  DeviceArray<float> out(2);
  ASSERT_EQ(Launch(ReadsWhatItDidNotWrite, {dim3(2), dim3(32)}, nullptr, out.get()), cudaSuccess);
  for (float value : out.Read()) EXPECT_NE(value, value);
}
#endif

__global__ void CountBlocks(int* next, int* order) {
  if (threadIdx.x == 0) order[blockIdx.x + gridDim.x * blockIdx.y] = atomicAdd(next, 1);
}

TEST(Schedule, TheSeedDecidesTheOrderOfBlocks) {
  const auto run = [](uint64_t seed) {
    SetSeed(seed);
    DeviceArray<int> next(std::vector<int>{0});
    DeviceArray<int> order(12);
    EXPECT_EQ(Launch(CountBlocks, {dim3(4, 3), dim3(32)}, nullptr, next.get(), order.get()),
              cudaSuccess);
    return order.Read();
  };
  const std::vector<int> first = run(1);
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 12; ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_EQ(run(1), first);
  EXPECT_NE(run(2), first);
}

__global__ void EarlyReturn(float* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

TEST(Schedule, EndedThreadsDoNotHoldABarrier) {
  DeviceArray<float> out(40);
  ASSERT_EQ(Launch(EarlyReturn, {dim3(1), dim3(64)}, nullptr, out.get()), cudaSuccess);
  for (float value : out.Read()) EXPECT_EQ(value, 1.0f);
}

__global__ void HalfShuffles(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}
__global__ void TwoCollectives(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  } else {
    __syncwarp();
  }
}
__global__ void WaitsForEver(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    ptx::NamedBarrierSync(1, 64);
  }
  out[threadIdx.x] = 1;
}
__global__ void StrangeMask(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 0); }
__global__ void PastTheEnd(int*) { ptx::DynamicShared<char>()[256 + threadIdx.x] = 1; }
__global__ void NoWait(int*) {}
__global__ void OneWaits(int*) {
  if (threadIdx.x == 0) ptx::GridDependencyWait();
}

void RunOnce(void (*kernel)(int*), bool after_previous) {
  int* out = nullptr;
  cudaMalloc(&out, 64 * sizeof(int));
  Launch(kernel, {dim3(1), dim3(64), 256, after_previous}, nullptr, out);
}

TEST(ScheduleDeathTest, WhatCannotGoOnIsNamed) {
  EXPECT_DEATH(RunOnce(HalfShuffles, false), "warp [01], lane [0-9]+: .*__shfl_sync");
  EXPECT_DEATH(RunOnce(TwoCollectives, false),
               "divergence: .*(__shfl_sync|__syncwarp).*while lanes");
  EXPECT_DEATH(RunOnce(WaitsForEver, false),
               "deadlock.*\n.*warp 0.*__syncthreads.*\n.*named barrier");
  EXPECT_DEATH(RunOnce(StrangeMask, false), "does not name the caller");
  EXPECT_DEATH(RunOnce(PastTheEnd, false), "dynamic shared memory was written|use-after-poison");
  EXPECT_DEATH(RunOnce(NoWait, true), "GridDependencyWait");
  EXPECT_DEATH(RunOnce(OneWaits, true), "lane [0-9]+: .*without GridDependencyWait");
}

}  // namespace
}  // namespace simt
