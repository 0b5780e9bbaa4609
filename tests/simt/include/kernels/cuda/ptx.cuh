#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "simt/float_formats.h"
#include "simt/machine.h"

// The emulated twin of kernels/cuda/ptx.cuh: the same functions with the same contracts (they are
// written there), executed by the machine of tests/simt/. Found first on the include path.
namespace tandem::ptx {

template <class T>
inline T* DynamicShared() {
  return reinterpret_cast<T*>(simt::detail::DynamicShared());
}
inline uint32_t SharedAddress(const void* p) { return simt::detail::SharedAddress(p); }

inline void CpAsync16(void* smem, const void* global) { simt::detail::CopyAsync(smem, global); }
inline void CpAsync16Zfill(void* smem, const void* global, bool valid) {
  simt::detail::CopyAsync(smem, valid ? global : nullptr);
}
inline void CpAsyncCommit() { simt::detail::CopyCommit(); }
template <int N>
inline void CpAsyncWait() {
  simt::detail::CopyWait(N);
}

// ---- matrix fragments ----

namespace emulated {

struct LoadMatrix {
  const void* row;
  uint32_t* out;
};
struct Mma {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};
extern const simt::detail::Collective kLoadMatrix4, kLoadMatrix4Trans, kMmaBf16, kMmaF16;
inline constexpr uint32_t kWarp = 0xffffffffu;

}  // namespace emulated

inline void LdMatrixX4(uint32_t (&r)[4], const void* smem_row) {
  emulated::LoadMatrix load{smem_row, r};
  simt::detail::JoinWarp(emulated::kLoadMatrix4, emulated::kWarp, &load);
}
inline void LdMatrixX4Trans(uint32_t (&r)[4], const void* smem_row) {
  emulated::LoadMatrix load{smem_row, r};
  simt::detail::JoinWarp(emulated::kLoadMatrix4Trans, emulated::kWarp, &load);
}
inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated::Mma mma{d, a, {b0, b1}};
  simt::detail::JoinWarp(emulated::kMmaBf16, emulated::kWarp, &mma);
}
inline void MmaF16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated::Mma mma{d, a, {b0, b1}};
  simt::detail::JoinWarp(emulated::kMmaF16, emulated::kWarp, &mma);
}

// ---- 16-bit and 8-bit floats ----

inline uint16_t ToBf16(float x) { return simt::ToBf16(x); }
inline uint16_t ToF16(float x) { return simt::ToF16(x); }
inline float FromBf16(uint16_t x) { return simt::FromBf16(x); }
inline float FromF16(uint16_t x) { return simt::FromF16(x); }
inline uint32_t PackBf16(float lo, float hi) {
  return ToBf16(lo) | static_cast<uint32_t>(ToBf16(hi)) << 16;
}
inline uint32_t PackF16(float lo, float hi) {
  return ToF16(lo) | static_cast<uint32_t>(ToF16(hi)) << 16;
}
inline float2 UnpackBf16(uint32_t packed) {
  return {FromBf16(static_cast<uint16_t>(packed)), FromBf16(static_cast<uint16_t>(packed >> 16))};
}
inline float2 UnpackF16(uint32_t packed) {
  return {FromF16(static_cast<uint16_t>(packed)), FromF16(static_cast<uint16_t>(packed >> 16))};
}
inline uint32_t PermuteBytes(uint32_t x, uint32_t selector) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> 4 * i & 3u;
    result |= (x >> 8 * from & 0xffu) << 8 * i;
  }
  return result;
}
inline float FromE4m3(uint8_t x) { return simt::FromE4m3(x); }
inline uint8_t ToE4m3(float x) { return simt::ToE4m3(x); }
inline uint32_t E4m3x2ToF16x2(uint16_t x) {
  return PackF16(FromE4m3(static_cast<uint8_t>(x)), FromE4m3(static_cast<uint8_t>(x >> 8)));
}
inline uint16_t F32x2ToE4m3x2(float lo, float hi) {
  return static_cast<uint16_t>(ToE4m3(lo) | ToE4m3(hi) << 8);
}

// ---- arithmetic: exact where the device approximates ----

inline float FlushSubnormal(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
inline float Exp2(float x) { return FlushSubnormal(std::exp2(x)); }
inline float Log2(float x) { return std::log2(FlushSubnormal(x)); }
inline float Rcp(float x) { return FlushSubnormal(1.0f / FlushSubnormal(x)); }

inline int Opaque(int x) { return x; }

inline void GridDependencyWait() { simt::detail::GridDependencyWaited(); }
inline void GridDependencyLaunch() {}
inline void PrefetchL2(const void*, uint32_t) {}
inline uint4 LoadStreaming(const uint4* p) { return *p; }
inline void StoreStreaming(uint4* p, uint4 v) { *p = v; }

// ---- sm_90a ----

struct Bf16 {};
struct F16 {};

inline void MbarrierInit(uint64_t* bar, int arrivals) { simt::detail::MbarrierInit(bar, arrivals); }
inline void FenceBarrierInit() {}
inline void FenceProxyAsync() {}
inline void MbarrierArrive(uint64_t* bar) { simt::detail::MbarrierArrive(bar); }
inline void MbarrierWait(uint64_t* bar, uint32_t parity) {
  simt::detail::MbarrierWait(bar, parity);
}
inline void NamedBarrierSync(int id, int threads) { simt::detail::NamedBarrier(id, threads, true); }
inline void NamedBarrierArrive(int id, int threads) {
  simt::detail::NamedBarrier(id, threads, false);
}
template <int N>
inline void SetMaxRegistersInc() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  simt::detail::SetMaxRegisters(N);
}
template <int N>
inline void SetMaxRegistersDec() {
  SetMaxRegistersInc<N>();
}

inline void WgmmaFence() { simt::detail::FenceProducts(); }
inline void WgmmaCommit() { simt::detail::CommitProducts(); }
template <int N>
inline void WgmmaWait() {
  simt::detail::WaitProducts(N);
}
template <int N>
inline void WgmmaFenceOperands(float (&)[N]) {}
inline uint64_t WgmmaDescriptor(const void* smem, int leading_bytes, int stride_bytes,
                                int swizzle) {
  const uint64_t start = (SharedAddress(smem) & 0x3ffffu) >> 4;
  const uint64_t leading = (static_cast<uint32_t>(leading_bytes) & 0x3ffffu) >> 4;
  const uint64_t stride = (static_cast<uint32_t>(stride_bytes) & 0x3ffffu) >> 4;
  return start | (leading << 16) | (stride << 32) | (static_cast<uint64_t>(swizzle) << 62);
}
template <class Type, int N, int TransB>
inline void WgmmaSS(float (&d)[N / 2], uint64_t a_desc, uint64_t b_desc, int scale_d) {
  static_assert(N == 64 || N == 128 || N == 256);
  simt::detail::StartProduct({d, nullptr, a_desc, b_desc, N, TransB == 1, scale_d != 0,
                              std::is_same_v<Type, Bf16> ? FromBf16 : FromF16});
}
template <class Type, int N, int TransB>
inline void WgmmaRS(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b_desc, int scale_d) {
  static_assert(N == 64 || N == 128 || N == 256);
  simt::detail::StartProduct({d, a, 0, b_desc, N, TransB == 1, scale_d != 0,
                              std::is_same_v<Type, Bf16> ? FromBf16 : FromF16});
}

}  // namespace tandem::ptx
