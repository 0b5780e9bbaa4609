#pragma once

#include <cstddef>
#include <cstdint>

#include "simt/vector_types.h"

// What the emulated instructions (device.h, kernels/cuda/ptx.cuh) ask of the machine that runs them
// (tests/simt/block.cc). All of it is called by a thread of a running block.
namespace simt::detail {

// An instruction that several lanes execute together. `run` sees the arguments of all of them, by
// lane (null where a lane takes no part), and is called once when the last of them has come.
struct Collective {
  const char* name;
  void (*run)(void* const* arguments);
};

// The lanes of `mask` of this warp. Ends the process when that can never be: a lane of the mask is
// absent, has ended or is somewhere else.
void JoinWarp(const Collective& collective, uint32_t mask, void* arguments);
// The 128 threads of this warpgroup.
void JoinWarpgroup(const Collective& collective, void* arguments);

void SyncThreads();
void NamedBarrier(int id, int threads, bool wait);

void MbarrierInit(uint64_t* bar, int arrivals);
void MbarrierArrive(uint64_t* bar);
void MbarrierWait(uint64_t* bar, uint32_t parity);

// The 16 bytes at `to` are undefined (NaN) from the call until a wait covers it. A null `from`
// stands for zeros.
void CopyAsync(void* to, const void* from);
void CopyCommit();
void CopyWait(int pending);

unsigned char* DynamicShared();
// The offset of `p` in dynamic shared memory; ends the process when it is elsewhere.
uint32_t SharedAddress(const void* p);
int LaneOfWarp();
void GridDependencyWaited();

// 64 x n products of a warpgroup; `a` is null when A comes by descriptor.
struct WarpgroupProduct {
  float* d;
  const uint32_t* a;
  uint64_t a_descriptor;
  uint64_t b_descriptor;
  int n;
  bool trans_b;
  bool accumulate;
  float (*decode)(uint16_t);
};
void StartProduct(WarpgroupProduct product);
void FenceProducts();
void CommitProducts();
void WaitProducts(int pending);
void SetMaxRegisters(int count);

// Prints what went wrong with the launch, the block and the warp, and ends the process.
[[noreturn]] void Fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace simt::detail
