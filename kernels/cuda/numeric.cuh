#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/ptx.cuh"
#include "kernels/tensor.h"

// The elements of tensors as kernels handle them: stored in 8 to 32 bits, computed in f32, taken
// from memory in chunks of 8.

namespace tandem::cuda {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct F8E4m3 {
  uint8_t bits;
};
// The int8 code of a quantised weight (kernels/weight_format.h).
struct Int8 {
  int8_t bits;
};

// ---- conversion of one element: to nearest, ties to even; NaN stays NaN ----

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(Bf16 x) { return ptx::FromBf16(x.bits); }
__device__ __forceinline__ float ToFloat(F16 x) { return ptx::FromF16(x.bits); }
__device__ __forceinline__ float ToFloat(F8E4m3 x) { return ptx::FromE4m3(x.bits); }
__device__ __forceinline__ float ToFloat(Int8 x) { return static_cast<float>(x.bits); }

__device__ __forceinline__ void Round(float x, float& to) { to = x; }
__device__ __forceinline__ void Round(float x, Bf16& to) { to.bits = ptx::ToBf16(x); }
__device__ __forceinline__ void Round(float x, F16& to) { to.bits = ptx::ToF16(x); }
__device__ __forceinline__ void Round(float x, F8E4m3& to) { to.bits = ptx::ToE4m3(x); }

// x as it reads back after it was stored as a T.
template <class T>
__device__ __forceinline__ float Rounded(float x) {
  T stored;
  Round(x, stored);
  return ToFloat(stored);
}

// ---- loads and stores of 8 elements, aligned to 16 bytes or to their length if that is shorter
// ----

inline constexpr int kChunk = 8;

__device__ __forceinline__ void LoadVector(const float* p, float (&x)[kChunk]) {
  const float4 low = reinterpret_cast<const float4*>(p)[0];
  const float4 high = reinterpret_cast<const float4*>(p)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

__device__ __forceinline__ float2 UnpackPair(uint32_t pair, Bf16) { return ptx::UnpackBf16(pair); }
__device__ __forceinline__ float2 UnpackPair(uint32_t pair, F16) { return ptx::UnpackF16(pair); }
__device__ __forceinline__ uint32_t PackPair(float lo, float hi, Bf16) {
  return ptx::PackBf16(lo, hi);
}
__device__ __forceinline__ uint32_t PackPair(float lo, float hi, F16) {
  return ptx::PackF16(lo, hi);
}

template <class Half>
__device__ __forceinline__ void UnpackVector(uint4 packed, float (&x)[kChunk]) {
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = UnpackPair(pairs[i], Half());
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

template <class Half>
__device__ __forceinline__ void LoadVector(const Half* p, float (&x)[kChunk]) {
  UnpackVector<Half>(*reinterpret_cast<const uint4*>(p), x);
}

__device__ __forceinline__ void StoreVector(const float (&x)[kChunk], float* p) {
  reinterpret_cast<float4*>(p)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

template <class Half>
__device__ __forceinline__ void StoreVector(const float (&x)[kChunk], Half* p) {
  *reinterpret_cast<uint4*>(p) =
      make_uint4(PackPair(x[0], x[1], Half()), PackPair(x[2], x[3], Half()),
                 PackPair(x[4], x[5], Half()), PackPair(x[6], x[7], Half()));
}

__device__ __forceinline__ void StoreVector(const float (&x)[kChunk], F8E4m3* p) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = ptx::F32x2ToE4m3x2(x[2 * i], x[2 * i + 1]);
  *reinterpret_cast<uint2*>(p) = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

// ---- loads and stores of 8 elements of a row of n, at any alignment ----

// How a kernel may load and store the rows that it is given. It is a template parameter: of a
// kernel that holds both ways the compiler makes one that stores 4 bytes at a time.
enum class Access : uint8_t {
  kVectors,   // each row begins on a multiple of 16 bytes
  kElements,  // rows begin anywhere
};

// Loads elements [at, at + 8) of a row of n. With kVectors all eight are in the row; with kElements
// those past its end become 0.
template <Access kAccess, class T>
__device__ __forceinline__ void LoadChunk(const T* row, int64_t at, int64_t n, float (&x)[kChunk]) {
  if constexpr (kAccess == Access::kVectors) {
    LoadVector(row + at, x);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = at + i < n ? ToFloat(row[at + i]) : 0.0f;
  }
}

// Stores x as elements [at, at + 8) of a row of n; nothing is written past the end of the row.
template <Access kAccess, class T>
__device__ __forceinline__ void StoreChunk(const float (&x)[kChunk], T* row, int64_t at,
                                           int64_t n) {
  if constexpr (kAccess == Access::kVectors) {
    StoreVector(x, row + at);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (at + i < n) Round(x[i], row[at + i]);
    }
  }
}

// The rows of a tensor, as a kernel's parameter.
template <class T>
struct Rows {
  T* data;
  int64_t stride;  // elements from one row to the next

  __device__ __forceinline__ T* operator[](int64_t row) const { return data + row * stride; }
};

// ---- on the host ----

template <class T>
Rows<T> RowsOf(const TensorView& tensor) {
  return {static_cast<T*>(tensor.data), tensor.row_stride};
}

// kVectors if all rows of these tensors begin on multiples of 16 bytes; absent tensors do not
// count.
inline Access AccessOf(std::initializer_list<TensorView> tensors) {
  constexpr uint64_t kVectorBytes = 16;
  for (const TensorView& tensor : tensors) {
    uint64_t places = reinterpret_cast<uint64_t>(tensor.data);
    if (tensor.rank > 1 && tensor.rows() > 1) {
      places |= static_cast<uint64_t>(tensor.row_stride * SizeOf(tensor.dtype));
    }
    if (places % kVectorBytes != 0) return Access::kElements;
  }
  return Access::kVectors;
}

// kVectors if AccessOf allows it and rows of n elements are whole chunks of 8.
inline Access AccessOfRows(int64_t n, std::initializer_list<TensorView> tensors) {
  return n % kChunk == 0 ? AccessOf(tensors) : Access::kElements;
}

// Calls `launch` with a value of the type that activations of `dtype` are stored in.
template <class Launcher>
cudaError_t WithActivationType(DType dtype, const Launcher& launch) {
  switch (dtype) {
    case DType::kF32:
      return launch(float{});
    case DType::kBF16:
      return launch(Bf16{});
    case DType::kF16:
      return launch(F16{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tandem::cuda
