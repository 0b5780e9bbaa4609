#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/coded_weight.h"
#include "kernels/cuda/numeric.cuh"

// How kernels widen the codes of quantised weights to floats.

namespace tandem::cuda {

// ---- 4 codes to two pairs of a 16-bit float, exactly: T is Bf16 or F16 ----

// Or-ed into the float 2^23, an integer below 2^23 makes the float that is 2^23 plus the integer.
template <class T>
__device__ __forceinline__ uint2 WidenCodes(uint32_t codes, Int8) {
  constexpr uint32_t kExponent = 0x4b000000u;
  constexpr float kOffset = 8388608.0f + 128.0f;
  const uint32_t shifted = codes ^ 0x80808080u;  // each from -128..127 to 0..255
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = __uint_as_float(kExponent | (shifted >> 8 * i & 0xffu)) - kOffset;
  }
  return make_uint2(PackPair(x[0], x[1], T()), PackPair(x[2], x[3], T()));
}

__device__ __forceinline__ uint32_t F16PairAs(uint32_t pair, F16) { return pair; }
__device__ __forceinline__ uint32_t F16PairAs(uint32_t pair, Bf16) {
  const float2 wide = ptx::UnpackF16(pair);
  return ptx::PackBf16(wide.x, wide.y);
}

template <class T>
__device__ __forceinline__ uint2 WidenCodes(uint32_t codes, F8E4m3) {
  return make_uint2(F16PairAs(ptx::E4m3x2ToF16x2(static_cast<uint16_t>(codes)), T()),
                    F16PairAs(ptx::E4m3x2ToF16x2(static_cast<uint16_t>(codes >> 16)), T()));
}

// Loads weights [at, at + 8) of a row, each the f32 product of its scale and code; those past the
// row are zeros.
template <class Code>
__device__ __forceinline__ void LoadCodes(const CodedWeight& weight, int64_t row, int64_t at,
                                          float (&x)[kChunk]) {
  const uint2 codes =
      *reinterpret_cast<const uint2*>(weight.codes + row * weight.row_codes + CodePlace(at));
  const uint16_t bits =
      weight.scales[row * (weight.row_codes / kCodeGroupInputs) + at / kCodeGroupInputs];
  const float scale = ptx::FromBf16(bits);
  const uint32_t fours[2] = {codes.x, codes.y};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const auto byte = static_cast<uint8_t>(fours[i / 4] >> 8 * (i % 4));
    x[i] = scale * ToFloat(Code{static_cast<decltype(Code::bits)>(byte)});
  }
}

// ---- on the host ----

// Calls `launch` with a value of the type of the codes.
template <class Launcher>
cudaError_t WithCodeType(WeightFormat format, const Launcher& launch) {
  if (format == WeightFormat::Int8()) return launch(Int8{});
  if (format == WeightFormat::F8E4M3()) return launch(F8E4m3{});
  return cudaErrorInvalidValue;
}

}  // namespace tandem::cuda
