#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/kv_store.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// One block per token: a group of lanes has a head, each lane 8 pairs (i, i + D/2) of it; of D =
// 128 that is 8 lanes, and the 32 + 8 + 8 heads of q, k and v are one pass of 384 threads. Bounded
// by memory: q, k and v are read once (for the norm twice, from the L1 cache) and written once.

namespace tandem::cuda {
namespace {

enum class Storing : uint8_t { kNo, kYes };

constexpr int kMaxThreads = 384;

// RopeArgs as a kernel takes them, and the v that is stored beside k.
template <class T>
struct RopeParams {
  Rows<T> q;
  Rows<T> k;
  Rows<const T> v;  // [T, num_stored, D]
  const int32_t* positions;
  Rows<const float> cos;
  Rows<const float> sin;
  const float* q_norm;  // or null
  const float* k_norm;  // or null
  float norm_eps;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t num_stored;  // heads of v: num_kv_heads or 0
  int32_t head_dim;
  int32_t lanes;  // of one head: a power of two up to 32
};

// A head of one token as the lanes of its group see it.
template <class T>
struct Head {
  T* data;            // null: these lanes have none
  const float* norm;  // or null
  const float* cos;
  const float* sin;
  int lane;
};

template <class T>
__device__ __forceinline__ Head<T> HeadOf(const RopeParams<T>& p, int64_t token, int index) {
  Head<T> head = {};
  head.lane = static_cast<int>(threadIdx.x) & (p.lanes - 1);
  if (index >= p.num_heads + p.num_kv_heads) return head;
  const bool query = index < p.num_heads;
  head.data = query ? p.q[token] + int64_t{index} * p.head_dim
                    : p.k[token] + int64_t{index - p.num_heads} * p.head_dim;
  head.norm = query ? p.q_norm : p.k_norm;
  const int64_t position = p.positions[token];
  head.cos = p.cos[position];
  head.sin = p.sin[position];
  return head;
}

// Where the chunks of `n` elements that a lane reads end: with vectors there are whole ones alone.
template <Access kAccess>
__device__ __forceinline__ int EndOf(int at, int n) {
  return kAccess == Access::kVectors ? at + kChunk : n;
}

// 1 / rms of the head. All lanes of the warp together.
template <Access kAccess, class T>
__device__ __forceinline__ float NormScale(const RopeParams<T>& p, const Head<T>& head) {
  float squares = 0;
  if (head.data != nullptr) {
    for (int at = head.lane * kChunk; at < p.head_dim; at += p.lanes * kChunk) {
      float x[kChunk];
      LoadChunk(head.data, at, EndOf<kAccess>(at, p.head_dim), kAccess, x);
#pragma unroll
      for (float value : x) squares = __fmaf_rn(value, value, squares);
    }
  }
  for (int distance = p.lanes / 2; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  }
  return 1.0f / sqrtf(squares / static_cast<float>(p.head_dim) + p.norm_eps);
}

__device__ __forceinline__ void Scale(const float (&weights)[kChunk], float scale,
                                      float (&x)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) x[i] = x[i] * scale * weights[i];
}

// Rotates the pairs [at, at + 8) of a head and leaves them in x and y as they are stored.
template <Access kAccess, class T>
__device__ __forceinline__ void RotatePairs(const RopeParams<T>& p, const Head<T>& head, int at,
                                            float scale, float (&x)[kChunk], float (&y)[kChunk]) {
  const int half = p.head_dim / 2;
  const int end = EndOf<kAccess>(at, half);
  float cos[kChunk];
  float sin[kChunk];
  LoadChunk(head.data, at, end, kAccess, x);
  LoadChunk(head.data + half, at, end, kAccess, y);
  if (head.norm != nullptr) {
    LoadChunk(head.norm, at, end, kAccess, cos);
    LoadChunk(head.norm + half, at, end, kAccess, sin);
    Scale(cos, scale, x);
    Scale(sin, scale, y);
  }
  LoadChunk(head.cos, at, end, kAccess, cos);
  LoadChunk(head.sin, at, end, kAccess, sin);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float first = __fmaf_rn(x[i], cos[i], -y[i] * sin[i]);
    const float second = __fmaf_rn(y[i], cos[i], x[i] * sin[i]);
    x[i] = Rounded<T>(first);
    y[i] = Rounded<T>(second);
  }
  StoreChunk(x, head.data, at, end, kAccess);
  StoreChunk(y, head.data + half, at, end, kAccess);
}

template <Access kAccess, class T>
__device__ __forceinline__ void StoreValues(const RopeParams<T>& p, const T* data, int lane,
                                            const KvTarget& to, KvPlace place) {
  for (place.at = lane * kChunk; place.at < p.head_dim; place.at += p.lanes * kChunk) {
    float x[kChunk];
    LoadChunk(data, place.at, place.at + kChunk, kAccess, x);
    StoreToSlot<kAccess>(x, to, place);
  }
}

// Three blocks on an SM hide the way from a token by its position to its rows of the tables.
template <class T, Storing kStoring, Access kAccess>
__global__ void __launch_bounds__(kMaxThreads,
                                  kStoring == Storing::kYes && kAccess == Access::kVectors ? 3 : 1)
    RotateHeads(RopeParams<T> p, KvTarget to) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int64_t token = blockIdx.x;
  const int64_t slot = kStoring == Storing::kYes ? to.slots[token] : -1;
  const int half = p.head_dim / 2;
  const int heads_per_pass = static_cast<int>(blockDim.x) / p.lanes;
  const int num_rotated = p.num_heads + p.num_kv_heads;
  for (int pass = 0; pass < num_rotated + p.num_stored; pass += heads_per_pass) {
    const int index = pass + static_cast<int>(threadIdx.x) / p.lanes;
    const Head<T> head = HeadOf(p, token, index);
    float scale = 1;
    if (p.q_norm != nullptr || p.k_norm != nullptr) scale = NormScale<kAccess>(p, head);
    if (index >= num_rotated) {
      const int v_head = index - num_rotated;
      if (slot < 0 || v_head >= p.num_stored) continue;
      StoreValues<kAccess>(p, p.v[token] + int64_t{v_head} * p.head_dim, head.lane, to,
                           {slot, KvPart::kValue, v_head, 0, kChunk});
      continue;
    }
    const int kv_head = index - p.num_heads;
    for (int at = head.lane * kChunk; at < half; at += p.lanes * kChunk) {
      float x[kChunk];
      float y[kChunk];
      RotatePairs<kAccess>(p, head, at, scale, x, y);
      if (slot < 0 || kv_head < 0) continue;
      const int count = EndOf<kAccess>(at, min(at + kChunk, half)) - at;
      StoreToSlot<kAccess>(x, to, {slot, KvPart::kKey, kv_head, at, count});
      StoreToSlot<kAccess>(y, to, {slot, KvPart::kKey, kv_head, half + at, count});
    }
  }
}

template <class T>
RopeParams<T> ParamsOf(const RopeArgs& args, const TensorView& v) {
  const auto head_dim = static_cast<int32_t>(args.q.shape[2]);
  const auto chunks = static_cast<uint32_t>((head_dim / 2 + kChunk - 1) / kChunk);
  return {.q = RowsOf<T>(args.q),
          .k = RowsOf<T>(args.k),
          .v = RowsOf<const T>(v),
          .positions = args.positions.device(),
          .cos = RowsOf<const float>(args.cos),
          .sin = RowsOf<const float>(args.sin),
          .q_norm = static_cast<const float*>(args.q_norm.data),
          .k_norm = static_cast<const float*>(args.k_norm.data),
          .norm_eps = args.norm_eps,
          .num_heads = static_cast<int32_t>(args.q.shape[1]),
          .num_kv_heads = static_cast<int32_t>(args.k.shape[1]),
          .num_stored = v.present() ? static_cast<int32_t>(v.shape[1]) : 0,
          .head_dim = head_dim,
          .lanes = static_cast<int32_t>(std::min(std::bit_ceil(chunks), 32u))};
}

template <class T>
LaunchShape BlockPerToken(const RopeParams<T>& p, int64_t num_tokens) {
  const int num_heads = p.num_heads + p.num_kv_heads + p.num_stored;
  const int threads = std::min(num_heads * p.lanes, kMaxThreads);
  return {.grid = dim3(static_cast<unsigned>(num_tokens)),
          .block = dim3(static_cast<unsigned>((threads + 31) / 32 * 32)),
          .after_previous = true};
}

// kVectors if both halves of a head are whole chunks as well.
Access RopeAccess(const RopeArgs& args) {
  if (args.q.shape[2] % (2 * kChunk) != 0) return Access::kElements;
  return AccessOf({args.q, args.k, args.cos, args.sin, args.q_norm, args.k_norm});
}

}  // namespace

cudaError_t Rope(const LaunchTarget& on, const RopeArgs& args) {
  const bool vectors = RopeAccess(args) == Access::kVectors;
  return WithActivationType(args.q.dtype, [&](auto type) {
    using T = decltype(type);
    const RopeParams<T> params = ParamsOf<T>(args, TensorView());
    const auto kernel = vectors ? RotateHeads<T, Storing::kNo, Access::kVectors>
                                : RotateHeads<T, Storing::kNo, Access::kElements>;
    return Launch(kernel, BlockPerToken(params, args.q.rows()), on.stream, params, KvTarget());
  });
}

cudaError_t RopeStoreKv(const LaunchTarget& on, const RopeArgs& rope, const StoreKvArgs& store) {
  const bool vectors =
      RopeAccess(rope) == Access::kVectors && StoreAccess(store) == Access::kVectors;
  return WithActivationType(rope.q.dtype, [&](auto type) {
    using T = decltype(type);
    const RopeParams<T> params = ParamsOf<T>(rope, store.v);
    const auto kernel = vectors ? RotateHeads<T, Storing::kYes, Access::kVectors>
                                : RotateHeads<T, Storing::kYes, Access::kElements>;
    return Launch(kernel, BlockPerToken(params, rope.q.rows()), on.stream, params, TargetOf(store));
  });
}

}  // namespace tandem::cuda
