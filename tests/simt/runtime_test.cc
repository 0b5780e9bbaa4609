// Streams, events, memory and errors of the emulated runtime.
#include <cuda_runtime.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.cuh"
#include "tests/simt/device_buffer.h"
#include "tests/simt/sanitizers.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

using tandem::Launch;

__global__ void Set(int* p, int value) { *p = value; }
__global__ void CopyOne(int* to, const int* from) { *to = *from; }

// A value is written on one stream and read on another. How many of 40 seeds read it too early.
int EarlyReads(bool with_event) {
  int early = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SetSeed(seed);
    DeviceArray<int> cells(std::vector<int>{0, 0});
    TestStream writer;
    TestStream reader;
    cudaEvent_t written;
    EXPECT_EQ(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(Launch(Set, {dim3(1), dim3(1)}, writer, cells.get(), 7), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(written, writer), cudaSuccess);
    if (with_event) {
      EXPECT_EQ(cudaStreamWaitEvent(reader, written), cudaSuccess);
    }
    EXPECT_EQ(Launch(CopyOne, {dim3(1), dim3(1)}, reader, cells.get() + 1, cells.get()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(reader), cudaSuccess);
    early += cells.Read()[1] == 7 ? 0 : 1;
    EXPECT_EQ(cudaEventDestroy(written), cudaSuccess);
  }
  return early;
}

TEST(Streams, AMissingEventShowsAndAPresentOneHolds) {
  EXPECT_EQ(EarlyReads(true), 0);
  EXPECT_GT(EarlyReads(false), 5);
}

TEST(Streams, WorkOfOneStreamRunsInOrder) {
  DeviceArray<int> cell(std::vector<int>{0});
  TestStream stream;
  for (int i = 1; i <= 50; ++i) {
    ASSERT_EQ(Launch(Set, {dim3(1), dim3(1)}, stream, cell.get(), i), cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cell.Read()[0], 50);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST(Streams, PollingAnEventGetsThere) {
  SetSeed(3);
  DeviceArray<int> cell(1);
  TestStream stream;
  cudaEvent_t done;
  ASSERT_EQ(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess);  // never recorded
  int not_ready = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Launch(Set, {dim3(1), dim3(1)}, stream, cell.get(), i), cudaSuccess);
  }
  ASSERT_EQ(cudaEventRecord(done, stream), cudaSuccess);
  while (cudaEventQuery(done) == cudaErrorNotReady) ++not_ready;
  EXPECT_GT(not_ready, 0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cell.Read()[0], 19);
  EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
}

// A pinned source is read when the copy runs, a pageable one before the call returns.
TEST(Copies, WhenTheSourceIsRead) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  int late = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetSeed(seed);
    DeviceArray<int> cells(2);
    TestStream stream;
    int pageable = 1;
    *pinned = 1;
    ASSERT_EQ(cudaMemcpyAsync(cells.get(), &pageable, sizeof(int), cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(cells.get() + 1, pinned, sizeof(int), cudaMemcpyDefault, stream),
              cudaSuccess);
    pageable = 2;
    *pinned = 2;
    const std::vector<int> result = cells.Read();
    EXPECT_EQ(result[0], 1);
    late += result[1] == 2 ? 1 : 0;
  }
  EXPECT_GT(late, 5);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// A copy to pageable memory has happened when the call returns, one to pinned memory perhaps not.
TEST(Copies, WhenTheTargetIsWritten) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  DeviceArray<int> cell(std::vector<int>{5});
  int late = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetSeed(seed);
    TestStream stream;
    *pinned = 0;
    ASSERT_EQ(cudaMemcpyAsync(pinned, cell.get(), sizeof(int), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    late += *pinned == 0 ? 1 : 0;
    int pageable = 0;
    ASSERT_EQ(cudaMemcpyAsync(&pageable, cell.get(), sizeof(int), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(pageable, 5);
    EXPECT_EQ(*pinned, 5);
  }
  EXPECT_GT(late, 5);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(Copies, WrongDirectionsAndSizesAreRefused) {
  DeviceArray<int> cell(std::vector<int>{5});
  int host = 0;
  EXPECT_EQ(cudaMemcpy(&host, cell.get(), sizeof(int), cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(&host, cell.get(), 2 * sizeof(int), cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(host, 0);
}

TEST(Memory, RegisteredMemoryIsPinned) {
  std::vector<char> bytes(4096);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, bytes.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(bytes.data(), 16, 0), cudaErrorHostMemoryAlreadyRegistered);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, bytes.data() + 100), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  void* reached = nullptr;
  ASSERT_EQ(cudaHostGetDevicePointer(&reached, bytes.data() + 100, 0), cudaSuccess);
  EXPECT_EQ(reached, bytes.data() + 100);
  ASSERT_EQ(cudaHostUnregister(bytes.data()), cudaSuccess);
  EXPECT_EQ(cudaHostGetDevicePointer(&reached, bytes.data(), 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(bytes.data()), cudaErrorHostMemoryNotRegistered);
}

TEST(Memory, RunsOutWhereTheDeviceEnds) {
  Configure({.memory_bytes = 1 << 20});
  void* first = nullptr;
  void* second = nullptr;
  EXPECT_EQ(cudaMalloc(&first, 700 << 10), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 400 << 10), cudaErrorMemoryAllocation);
  EXPECT_EQ(second, nullptr);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(total_bytes, size_t{1} << 20);
  EXPECT_EQ(free_bytes, total_bytes - (700 << 10));
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 1 << 20), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaErrorInvalidValue);
  Configure({});
}

TEST(MemoryDeathTest, IsOutOfTheHostsReach) {
  const DeviceArray<int> cell(std::vector<int>{7});
  EXPECT_DEATH(*cell.get() = 1, "the host touches device memory");
  EXPECT_EQ(cell.Read()[0], 7);
}

#if defined(SIMT_ASAN)
__global__ void WriteAt(char* p, size_t offset) { p[offset] = 1; }

TEST(MemoryDeathTest, EndsWhereItEnds) {
  DeviceArray<char> bytes(100);
  EXPECT_DEATH(Launch(WriteAt, {dim3(1), dim3(1)}, nullptr, bytes.get(), size_t{100}),
               "use-after-poison");
}
#endif

TEST(Device, WhatAMachineWithoutADriverSays) {
  int count = -1;
  void* pointer = nullptr;
  Configure({.missing_driver = true});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, -1);
  EXPECT_EQ(cudaMallocHost(&pointer, 16), cudaErrorInsufficientDriver);
  int version = -1;
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 0);
  Configure({.driver_version = 12040});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  Configure({.num_devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  Configure({.compute_capability = 120});
  DeviceArray<int> cell(1);
  EXPECT_EQ(Launch(Set, {dim3(1), dim3(1)}, nullptr, cell.get(), 1),
            cudaErrorNoKernelImageForDevice);
  Configure({});
}

TEST(Device, LaunchesThatCannotBe) {
  DeviceArray<int> cell(1);
  EXPECT_EQ(Launch(Set, {dim3(1), dim3(1025)}, nullptr, cell.get(), 1),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(Launch(Set, {dim3(0), dim3(32)}, nullptr, cell.get(), 1),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(Launch(Set, {dim3(1), dim3(32), 228 << 10}, nullptr, cell.get(), 1),
            cudaErrorInvalidValue);
  EXPECT_EQ(Launch(Set, {dim3(1), dim3(32), 227 << 10}, nullptr, cell.get(), 1), cudaSuccess);
}

TEST(Device, Counts) {
  ResetCounts();
  {
    TestStream stream;
    DeviceArray<int> cell(1);
    EXPECT_EQ(Launch(Set, {dim3(2, 3), dim3(1)}, stream, cell.get(), 1), cudaSuccess);
    EXPECT_EQ(cell.Read()[0], 1);
  }
  const Counters counts = Counts();
  EXPECT_EQ(counts.allocations, 1);
  EXPECT_EQ(counts.launches, 1);
  EXPECT_EQ(counts.thread_blocks, 6);
  EXPECT_EQ(counts.kernels_run, 1);
  EXPECT_EQ(counts.device_synchronizations, 2);  // one by Read, one by cudaFree
  EXPECT_EQ(counts.copies_to_host, 1);
  EXPECT_EQ(counts.pageable_copies, 1);
}

// Each thread drives a stream of its own.
TEST(Streams, SeveralHostThreads) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      DeviceArray<int> cell(1);
      TestStream stream;
      for (int i = 0; i < 100; ++i) {
        Launch(Set, {dim3(1), dim3(32)}, stream, cell.get(), 1000 * t + i);
        int value = 0;
        cudaMemcpyAsync(&value, cell.get(), sizeof(int), cudaMemcpyDeviceToHost, stream);
        if (value != 1000 * t + i) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace simt
