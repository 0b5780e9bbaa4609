#pragma once

#include <cstdint>

#include "kernels/cuda/attention/swizzle.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/op_args.h"

// What the attention kernels share: where K and V lie, logits, the online softmax on fragments of
// mma.m16n8k16, and the types of activations.

namespace tandem::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.69314718055994531f;
inline constexpr float kInfinity = __builtin_huge_valf();
inline constexpr int kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

// ---- the block pool

// K and V of one layer: one row of head_dim elements per token, the rows of a block one behind the
// other.
struct PagedKv {
  const unsigned char* keys = nullptr;  // of block 0, KV head 0
  int64_t block_bytes = 0;              // from one block to the next
  int64_t head_bytes = 0;               // from one KV head to the next
  int64_t value_bytes = 0;              // from K to V
  int32_t row_bytes = 0;
  int32_t block_shift = 0;  // log2(block_tokens)

  __device__ __forceinline__ const unsigned char* Keys(int32_t block, int32_t kv_head,
                                                       int32_t token) const {
    return keys + block * block_bytes + kv_head * head_bytes +
           int64_t{token & ((1 << block_shift) - 1)} * row_bytes;
  }
};

inline PagedKv MakePagedKv(const KvPoolView& pool, int32_t layer) {
  PagedKv kv;
  kv.keys = reinterpret_cast<const unsigned char*>(pool.Extent(layer, 0));
  kv.block_bytes = pool.ExtentBytes();
  kv.value_bytes = kv.block_bytes / 2;
  kv.head_bytes = kv.value_bytes / pool.num_kv_heads;
  kv.row_bytes = static_cast<int32_t>(kv.head_bytes / pool.block_tokens);
  while ((1 << kv.block_shift) < pool.block_tokens) ++kv.block_shift;
  return kv;
}

// ---- logits

// From q * k to a logit in powers of two: Exp2 of it is the weight. The cap is softcap * tanh(x /
// softcap) with tanh(x) = 1 - 2 / (1 + e^2x), which is exact to a few units; the tanh instruction
// would be wrong by a percent of a weight at usual caps.
struct LogitRule {
  float scale = 0;     // without a cap: log2(e) times the scale
  float cap_rate = 0;  // 2 * log2(e) * scale / softcap
  float cap = 0;       // softcap * log2(e); 0: none

  __device__ __forceinline__ float Logit2(float product) const {
    if (cap == 0) return product * scale;
    return cap * (1 - 2 * ptx::Rcp(1 + ptx::Exp2(product * cap_rate)));
  }

  // Applies Logit2 to whole accumulators, in place.
  template <int kTiles>
  __device__ __forceinline__ void ToLogits(float (&products)[kTiles][4]) const {
    if (cap == 0) {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) products[i / 4][i % 4] *= scale;
    } else {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) products[i / 4][i % 4] = Logit2(products[i / 4][i % 4]);
    }
  }
};

inline LogitRule MakeLogitRule(const AttentionArgs& args) {
  const float scale = args.scale * args.pool.k_scale;
  LogitRule rule;
  rule.scale = scale * kLog2E;
  if (args.softcap > 0) {
    rule.cap_rate = 2 * kLog2E * scale / args.softcap;
    rule.cap = args.softcap * kLog2E;
  }
  return rule;
}

// ---- fragments

// Packs two f32 as a pair of Type, ptx::Bf16 or ptx::F16, which is what the tensor cores multiply.
template <class Type>
__device__ __forceinline__ uint32_t Pack(float lo, float hi);
template <>
__device__ __forceinline__ uint32_t Pack<ptx::Bf16>(float lo, float hi) {
  return ptx::PackBf16(lo, hi);
}
template <>
__device__ __forceinline__ uint32_t Pack<ptx::F16>(float lo, float hi) {
  return ptx::PackF16(lo, hi);
}

template <class Type>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1);
template <>
__device__ __forceinline__ void Mma<ptx::Bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1) {
  ptx::MmaBf16(d, a, b0, b1);
}
template <>
__device__ __forceinline__ void Mma<ptx::F16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  ptx::MmaF16(d, a, b0, b1);
}

// The maximum over the four lanes that hold a row of a fragment; QuadSum is their sum. Warp.
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// The maximum to subtract from logits: 0 for a row that saw nothing, whose -inf would give NaN.
__device__ __forceinline__ float FiniteMax(float max) { return max == -kInfinity ? 0.0f : max; }

// The state of the two rows that a lane shares with its quad, rows lane/4 [0] and lane/4 + 8 [1] of
// 16: the largest logit so far, and the sum of 2^(logit - max) over this lane's own columns.
struct SoftmaxRows {
  float max[2] = {-kInfinity, -kInfinity};
  float sum[2] = {0, 0};

  // Takes kTiles accumulators of 16 rows x 8 keys, as logits in powers of two with -inf for keys
  // that a row does not see, and turns them into weights. The caller multiplies what was
  // accumulated before by `rescale`. Warp.
  template <int kTiles>
  __device__ __forceinline__ void Add(float (&logits)[kTiles][4], float (&rescale)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float tile_max = -kInfinity;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        tile_max = fmaxf(tile_max, fmaxf(logits[i][2 * row], logits[i][2 * row + 1]));
      }
      const float new_max = fmaxf(max[row], QuadMax(tile_max));
      const float base = FiniteMax(new_max);
      rescale[row] = ptx::Exp2(max[row] - base);
      max[row] = new_max;
      float tile_sum = 0;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        logits[i][2 * row] = ptx::Exp2(logits[i][2 * row] - base);
        logits[i][2 * row + 1] = ptx::Exp2(logits[i][2 * row + 1] - base);
        tile_sum += logits[i][2 * row] + logits[i][2 * row + 1];
      }
      sum[row] = sum[row] * rescale[row] + tile_sum;
    }
  }
};

// ---- activations: f32, bf16 or f16 in memory, f32 in registers

// Loads eight elements that begin on a multiple of 16 bytes.
__device__ __forceinline__ void LoadEight(const void* from, DType dtype, float (&x)[8]) {
  if (dtype == DType::kF32) {
    const auto* quads = static_cast<const float4*>(from);
    const float4 low = quads[0];
    const float4 high = quads[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    return;
  }
  const uint4 packed = *static_cast<const uint4*>(from);
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair =
        dtype == DType::kBF16 ? ptx::UnpackBf16(pairs[i]) : ptx::UnpackF16(pairs[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

// Stores four elements, at an address aligned to the size of all four.
__device__ __forceinline__ void StoreFour(void* to, DType dtype, float4 x) {
  if (dtype == DType::kF32) {
    *static_cast<float4*>(to) = x;
  } else if (dtype == DType::kBF16) {
    *static_cast<uint2*>(to) = make_uint2(ptx::PackBf16(x.x, x.y), ptx::PackBf16(x.z, x.w));
  } else {
    *static_cast<uint2*>(to) = make_uint2(ptx::PackF16(x.x, x.y), ptx::PackF16(x.z, x.w));
  }
}

__device__ __forceinline__ int ActivationBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

}  // namespace tandem::cuda
