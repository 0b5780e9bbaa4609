#pragma once

// Wrappers of what only sm_90a has, but for the warpgroup matrix products (ptx_wgmma.cuh): barriers
// in shared memory, register hand-over. Included by ptx.cuh. A kernel that uses these does not
// compile for another architecture.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include <cstdint>

namespace tandem::ptx {

// ---- barriers in shared memory, 8 aligned bytes each ----

// Prepares a barrier before its first use: each phase completes after `arrivals` arrivals. Lane,
// one of the block. mbarrier.init
__device__ __forceinline__ void MbarrierInit(uint64_t* bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(bar)), "r"(arrivals)
               : "memory");
}

// Makes barrier initialisations seen by the asynchronous units; a block barrier follows. Lane, the
// one that initialised. fence.mbarrier_init
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Makes the lane's writes to shared memory seen by warpgroup products and bulk copies that are
// started after a following barrier. Lane, each that wrote. fence.proxy.async
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives once at a barrier in shared memory, without waiting. Lane. mbarrier.arrive
__device__ __forceinline__ void MbarrierArrive(uint64_t* bar) {
  asm volatile(
      "{.reg .b64 state;\n mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(SharedAddress(bar))
      : "memory");
}

// Waits until the barrier's phase of this parity has completed; the first phase has parity 0. Lane.
// mbarrier.try_wait.parity
__device__ __forceinline__ void MbarrierWait(uint64_t* bar, uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @done bra over;\n"
      " bra again;\n"
      "over:}" ::"r"(SharedAddress(bar)),
      "r"(parity)
      : "memory");
}

// ---- named barriers, for part of the block: id 1 to 15 (0 is __syncthreads), threads a multiple
// of 32

// Arrives at a named barrier and waits until `threads` threads have arrived. Warp. barrier.sync
__device__ __forceinline__ void NamedBarrierSync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at a named barrier without waiting; `threads` counts all that arrive. Warp.
// barrier.arrive
__device__ __forceinline__ void NamedBarrierArrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- registers per thread: N is a multiple of 8 from 24 to 256. The kernel must state
// __launch_bounds__(threads, blocks), or ptxas ignores both ----

// Raises the thread's registers to N, waiting until as many are free. Warpgroup. setmaxnreg.inc
template <int N>
__device__ __forceinline__ void SetMaxRegistersInc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// Lowers the thread's registers to N and gives the rest back. Warpgroup. setmaxnreg.dec
template <int N>
__device__ __forceinline__ void SetMaxRegistersDec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace tandem::ptx

#endif
