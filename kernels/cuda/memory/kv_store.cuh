#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/numeric.cuh"
#include "kernels/op_args.h"

// Where a token's K and V lie in the pool, and how they are rounded to its type: what StoreKv and
// RopeStoreKv share.

namespace tandem::cuda {

// StoreKvArgs as a kernel takes them.
struct KvTarget {
  const int64_t* slots;
  std::byte* layer;         // the layer's first extent
  int64_t extent_elements;  // from block to block
  int64_t value_elements;   // from the K of a block to its V
  int64_t head_elements;    // from head to head
  DType dtype;
  int32_t block_shift;  // log2(block_tokens)
  int32_t num_kv_heads;
  int32_t head_dim;
  float k_scale;
  float v_scale;
};

enum class KvPart : uint8_t { kKey, kValue };

// The place of one token's elements [at, at + count) of one KV head in the pool; count is at most
// 8.
struct KvPlace {
  int64_t slot;  // not -1
  KvPart part;
  int head;
  int at;
  int count;
};

template <class T, Access kAccess>
__device__ __forceinline__ void StoreRounded(const float (&x)[kChunk], const KvTarget& to,
                                             int64_t element, int count) {
  StoreChunk<kAccess>(x, reinterpret_cast<T*>(to.layer) + element, 0, count);
}

template <Access kAccess>
__device__ __forceinline__ void StoreToSlot(const float (&x)[kChunk], const KvTarget& to,
                                            const KvPlace& place) {
  const int64_t in_block = place.slot & ((int64_t{1} << to.block_shift) - 1);
  int64_t element = (place.slot >> to.block_shift) * to.extent_elements +
                    place.head * to.head_elements + in_block * to.head_dim + place.at;
  if (place.part == KvPart::kValue) element += to.value_elements;
  if (to.dtype == DType::kBF16) {
    StoreRounded<Bf16, kAccess>(x, to, element, place.count);
  } else if (to.dtype == DType::kF16) {
    StoreRounded<F16, kAccess>(x, to, element, place.count);
  } else if (to.dtype == DType::kF32) {
    StoreRounded<float, kAccess>(x, to, element, place.count);
  } else {
    const float scale = place.part == KvPart::kKey ? to.k_scale : to.v_scale;
    float scaled[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) scaled[i] = x[i] / scale;
    StoreRounded<F8E4m3, kAccess>(scaled, to, element, place.count);
  }
}

inline KvTarget TargetOf(const StoreKvArgs& args) {
  const KvPoolView& pool = args.pool;
  const int64_t head_elements = int64_t{pool.block_tokens} * pool.head_dim;
  return {.slots = args.slots.device(),
          .layer = pool.Extent(args.layer, 0),
          .extent_elements = 2 * pool.num_kv_heads * head_elements,
          .value_elements = pool.num_kv_heads * head_elements,
          .head_elements = head_elements,
          .dtype = pool.dtype,
          .block_shift = std::countr_zero(static_cast<uint32_t>(pool.block_tokens)),
          .num_kv_heads = pool.num_kv_heads,
          .head_dim = pool.head_dim,
          .k_scale = pool.k_scale,
          .v_scale = pool.v_scale};
}

// The access that suits the alignment of all that is read and written.
inline Access StoreAccess(const StoreKvArgs& args) {
  const TensorView heads(args.pool.data, args.pool.dtype, {1, args.pool.head_dim});
  return AccessOf({args.k, args.v, heads});
}

}  // namespace tandem::cuda
