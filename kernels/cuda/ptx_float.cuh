#pragma once

#include <cstdint>

// Wrappers of arithmetic on floats: conversion of the formats of 16 and 8 bits, and fast functions.
// Included by ptx.cuh, which explains the comments.
namespace tandem::ptx {

// ---- conversion of 16-bit floats: to nearest, ties to even; NaN stays NaN; f16 overflows to
// infinity

// Two f32 to a pair of bf16. Lane. cvt.rn.bf16x2.f32
__device__ __forceinline__ uint32_t PackBf16(float lo, float hi) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
  return packed;
}

// Two f32 to a pair of f16. Lane. cvt.rn.f16x2.f32
__device__ __forceinline__ uint32_t PackF16(float lo, float hi) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
  return packed;
}

// A pair of bf16 to two f32, by a shift each: bf16 is the upper half of an f32. Lane.
__device__ __forceinline__ float2 UnpackBf16(uint32_t packed) {
  return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
}

// A pair of f16 to two f32. Lane. cvt.f32.f16
__device__ __forceinline__ float2 UnpackF16(uint32_t packed) {
  float2 out;
  asm("{.reg .f16 lo, hi;\n mov.b32 {lo, hi}, %2;\n cvt.f32.f16 %0, lo;\n cvt.f32.f16 %1, hi;}"
      : "=f"(out.x), "=f"(out.y)
      : "r"(packed));
  return out;
}

// One f32 to bf16. Lane. cvt.rn.bf16.f32
__device__ __forceinline__ uint16_t ToBf16(float x) {
  uint16_t out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
}

// One f32 to f16. Lane. cvt.rn.f16.f32
__device__ __forceinline__ uint16_t ToF16(float x) {
  uint16_t out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
}

// One bf16 to f32, by a shift. Lane.
__device__ __forceinline__ float FromBf16(uint16_t x) {
  return __uint_as_float(static_cast<uint32_t>(x) << 16);
}

// One f16 to f32. Lane. cvt.f32.f16
__device__ __forceinline__ float FromF16(uint16_t x) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x));
  return out;
}

// ---- bytes ----

// Byte i of the result is byte (selector >> 4i) % 4 of x. Lane. prmt.b32
__device__ __forceinline__ uint32_t PermuteBytes(uint32_t x, uint32_t selector) {
  return __byte_perm(x, 0, selector);
}

// ---- fp8 e4m3: bias 7, no infinity, NaN is 0x7f; beyond 448 it saturates ----

// Two e4m3 (first in the low byte) to two f16, exactly. Lane. cvt.rn.f16x2.e4m3x2 on sm_89 and
// later. On older GPUs: the bits of e4m3 read as an f16 are the value times 2^-8, subnormals
// included.
__device__ __forceinline__ uint32_t E4m3x2ToF16x2(uint16_t x) {
  uint32_t out;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(x));
#else
  const uint32_t spread = (x & 0xffu) | ((x & 0xff00u) << 8);
  const uint32_t scaled = ((spread & 0x007f007fu) << 7) | ((spread & 0x00800080u) << 8);
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(scaled), "r"(0x5c005c00u));
  if ((spread & 0x7fu) == 0x7fu) out |= 0x7fffu;
  if ((spread & 0x7f0000u) == 0x7f0000u) out |= 0x7fff0000u;
#endif
  return out;
}

// One e4m3 to f32, exactly, by way of f16. Lane.
__device__ __forceinline__ float FromE4m3(uint8_t x) {
  return FromF16(static_cast<uint16_t>(E4m3x2ToF16x2(x)));
}

// One f32 to e4m3, to nearest, ties to even, in integer arithmetic: the same result as the
// instruction of sm_89. Lane.
__device__ __forceinline__ uint8_t RoundToE4m3(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  uint32_t code = 0x7e;           // 448, the largest
  if (magnitude < 0x3c800000u) {  // below 2^-6: multiples of 2^-9, whose count is the code
    code = static_cast<uint32_t>(__float2int_rn(__uint_as_float(magnitude) * 512.0f));
  } else if (magnitude < 0x43e00000u) {
    code = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  }
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

// Two f32 to two e4m3, `lo` in the low byte. Lane. cvt.rn.satfinite.e4m3x2.f32 on sm_89 and later
__device__ __forceinline__ uint16_t F32x2ToE4m3x2(float lo, float hi) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(hi), "f"(lo));
  return out;
#else
  return static_cast<uint16_t>(RoundToE4m3(lo) | (RoundToE4m3(hi) << 8));
#endif
}

// One f32 to e4m3. Lane.
__device__ __forceinline__ uint8_t ToE4m3(float x) {
  return static_cast<uint8_t>(F32x2ToE4m3x2(x, 0.0f) & 0xffu);
}

// ---- fast arithmetic: about 2 units in the last place, subnormals flushed ----

// 2^x. Lane. ex2.approx.ftz
__device__ __forceinline__ float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// The logarithm of x to base 2. Lane. lg2.approx.ftz
__device__ __forceinline__ float Log2(float x) {
  float out;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// 1 / x. Lane. rcp.approx.ftz
__device__ __forceinline__ float Rcp(float x) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

}  // namespace tandem::ptx
