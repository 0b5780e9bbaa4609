#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

// The machine instructions that CUDA C++ does not spell: one thin wrapper each, by inline PTX. The
// kernels contain no assembly of their own, so the emulator of tests/simt/ replaces this one header
// to run them on a CPU: the three that it includes at its end are included by no other file. Each
// comment names the instruction as in the PTX ISA and who must call it: "lane": any thread alone;
// "warp": all 32 lanes together; "warpgroup": 128 threads, four warps. 16-bit floats travel as
// uint16_t, or as pairs in a uint32_t with the first element in the low half.
namespace tandem::ptx {

// ---- shared memory ----

// The block's dynamic shared memory, aligned to 1024 bytes. Lane.
template <class T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(1024) unsigned char tandem_dynamic_shared[];
  return reinterpret_cast<T*>(tandem_dynamic_shared);
}

// The 32-bit address in the shared window of a pointer into shared memory. Lane. cvta.to.shared
__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Starts a copy of 16 aligned bytes into shared memory, past the L1 cache, and asks that
// what misses the L2 cache come into it by whole lines of 128 bytes: the users of these copies read
// lines whole, each from memory once. Lane. cp.async.cg with a prefetch size
__device__ __forceinline__ void CpAsync16(void* smem, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(SharedAddress(smem)),
               "l"(global)
               : "memory");
}

// Starts a copy of 16 aligned bytes into shared memory, or writes 16 zero bytes when `valid` is
// false: `global` is then not copied, but must be a legal address all the same. Otherwise as
// CpAsync16. Lane. cp.async.cg with a prefetch size and a source size
__device__ __forceinline__ void CpAsync16Zfill(void* smem, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(SharedAddress(smem)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

// Closes the lane's group of copies started since the last commit. Lane. cp.async.commit_group
__device__ __forceinline__ void CpAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of the lane's newest groups are under way; other lanes see the bytes after
// a barrier. Lane. cp.async.wait_group
template <int N>
__device__ __forceinline__ void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- matrix fragments ----

// Tags: the type of a matrix product's A and B.
struct Bf16 {};
struct F16 {};

// Four 8x8 matrices of 16-bit elements: lane 8i+j passes row j of matrix i (16 aligned bytes); r[i]
// receives the elements 2(lane%4), +1 of row lane/4 of matrix i. Warp. ldmatrix.x4
__device__ __forceinline__ void LdMatrixX4(uint32_t (&r)[4], const void* smem_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(smem_row))
               : "memory");
}

// Loads four 8x8 matrices as LdMatrixX4 does, each transposed on the way. Warp. ldmatrix.x4.trans
__device__ __forceinline__ void LdMatrixX4Trans(uint32_t (&r)[4], const void* smem_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(smem_row))
               : "memory");
}

// d[16x8] += a[16x16] * b[16x8], products of bf16 summed in f32. With g = lane/4, t = lane%4:
// a[0..3] hold (row g, k 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), two k each; b0, b1 hold (k 2t,
// column g), (2t+8, g); d holds (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). Warp. mma.m16n8k16
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d[16x8] += a[16x16] * b[16x8] with f16 elements, whose fragments lie as for MmaBf16. Warp.
// mma.m16n8k16
__device__ __forceinline__ void MmaF16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- control of the register allocation ----

// Returns x as a value that the compiler cannot trace: what is computed from it is computed again
// instead of being kept in registers through a loop. Lane. No instruction
__device__ __forceinline__ int Opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// ---- overlap of kernels, and loads and stores past the caches ----

// Waits until the kernel before this one in its stream has ended and its writes are visible, and so
// have those that it waited for in turn. Needed when this kernel was launched after_previous
// (launch.cuh); no instruction below sm_90. ptxas moves loads of data that no kernel writes behind
// the wait. Lane, all of the block. griddepcontrol.wait
__device__ __forceinline__ void GridDependencyWait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start when every block of this one has called this or ended;
// no instruction below sm_90. Kernels call it first, so that the next kernel is resident early: its
// own GridDependencyWait passes only when this kernel has ended. Lane.
// griddepcontrol.launch_dependents
__device__ __forceinline__ void GridDependencyLaunch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Brings `bytes` bytes from p on, soon to be read, into the L2 cache: p is aligned to 16 bytes,
// `bytes` a multiple of 16. No instruction below sm_90. The compiler leaves this in front of
// GridDependencyWait, where it does not leave a load. Lane. cp.async.bulk.prefetch.L2
__device__ __forceinline__ void PrefetchL2(const void* p, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

// Loads 16 aligned bytes that no other block reads again. Not an .nc load: ptxas would put the last
// of several such loads behind the stores of the first. Lane. ld.global.L1::no_allocate
__device__ __forceinline__ uint4 LoadStreaming(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Stores 16 aligned bytes that are not read again soon. Lane. st.global.cs
__device__ __forceinline__ void StoreStreaming(uint4* p, uint4 v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

}  // namespace tandem::ptx

#include "kernels/cuda/ptx_float.cuh"
#include "kernels/cuda/ptx_sm90.cuh"
#include "kernels/cuda/ptx_wgmma.cuh"
