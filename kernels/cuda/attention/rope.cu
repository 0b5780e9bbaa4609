#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/kv_store.cuh"
#include "kernels/cuda/numeric.cuh"

// Rotary embedding, with a norm before and storing to the pool after it where wanted. A group of
// lanes handles one head, each lane 8 pairs (i, i + D/2) of it. With D = 128 that is 8 lanes, and
// the 32 + 8 + 8 heads of q, k and v are the 384 threads of two blocks, which take one token after
// the other. Bounded by memory: q, k and v are read once and written once. On sm_90 that leaves
// some 450 instructions per thread and token, of which it takes 270: what does not depend on the
// token is done once, and a token's position is loaded while the previous token is at work.

namespace tandem::cuda {
namespace {

enum class Storing : uint8_t { kNo, kYes };

constexpr int kMaxThreads = 192;
constexpr int kBlocksPerSm = 4;
constexpr uint32_t kMaxLanes = 32;
constexpr int64_t kMaxHeadDim = kMaxLanes * 2 * kChunk;

// RopeArgs as a kernel takes them, and the v that is stored beside k.
template <class T>
struct RopeParams {
  Rows<T> q;
  Rows<T> k;
  Rows<T> v;  // [T, num_stored, D], only read
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
  float inverse_dim;    // 1 / head_dim
  int32_t lanes;        // lanes per head: a power of two up to kMaxLanes
  int32_t lanes_shift;  // log2(lanes)
  int32_t num_tokens;
};

// The head that a group of lanes handles of every token: heads of q come first, then k, then v.
template <class T>
struct Head {
  Rows<T> rows;       // data points to this head of token 0
  const float* norm;  // or null
  int kv_head;        // negative: a head of q
  bool rotated;
};

template <class T>
__device__ __forceinline__ Head<T> HeadOf(const RopeParams<T>& p, int index) {
  const int kv_head = index - p.num_heads;
  if (kv_head < 0) {
    return {{p.q.data + int64_t{index} * p.head_dim, p.q.stride}, p.q_norm, kv_head, true};
  }
  if (kv_head < p.num_kv_heads) {
    return {{p.k.data + int64_t{kv_head} * p.head_dim, p.k.stride}, p.k_norm, kv_head, true};
  }
  const int v_head = kv_head - p.num_kv_heads;
  return {{p.v.data + int64_t{v_head} * p.head_dim, p.v.stride}, nullptr, v_head, false};
}

// A lane's pairs (i, i + half) of a head; also their cosines and sines, or their weights of the
// norm. Zeros where i is beyond the half.
struct Pairs {
  float x[kChunk];
  float y[kChunk];
};

template <Access kAccess, class T>
__device__ __forceinline__ void LoadPairs(const T* head, int at, int half, Pairs& pairs) {
  LoadChunk<kAccess>(head, at, half, pairs.x);
  LoadChunk<kAccess>(head + half, at, half, pairs.y);
}

template <Access kAccess, class T>
__device__ __forceinline__ void StorePairs(const Pairs& pairs, int at, int half, T* head) {
  StoreChunk<kAccess>(pairs.x, head, at, half);
  StoreChunk<kAccess>(pairs.y, head + half, at, half);
}

// 1 / rms of the head, for its norm. Called by all lanes of the warp together, also those that are
// not `present`.
template <class T>
__device__ __forceinline__ float NormScale(const RopeParams<T>& p, const Pairs& pairs,
                                           bool present) {
  float squares = 0;
#pragma unroll
  for (float value : pairs.x) squares = __fmaf_rn(value, value, squares);
#pragma unroll
  for (float value : pairs.y) squares = __fmaf_rn(value, value, squares);
  if (!present) squares = 0;
  for (int distance = p.lanes / 2; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  }
  return 1.0f / sqrtf(__fmaf_rn(squares, p.inverse_dim, p.norm_eps));
}

__device__ __forceinline__ void ApplyNorm(const Pairs& weights, float scale, Pairs& pairs) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    pairs.x[i] = pairs.x[i] * scale * weights.x[i];
    pairs.y[i] = pairs.y[i] * scale * weights.y[i];
  }
}

// Rotates pairs by the angles whose cosines are angles.x and whose sines are angles.y.
__device__ __forceinline__ void Rotate(const Pairs& angles, Pairs& pairs) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float x = pairs.x[i];
    const float y = pairs.y[i];
    pairs.x[i] = __fmaf_rn(x, angles.x[i], -y * angles.y[i]);
    pairs.y[i] = __fmaf_rn(y, angles.x[i], x * angles.y[i]);
  }
}

// Rounds the pairs as if they were stored in T and read back; f32 stays as it is.
__device__ __forceinline__ void RoundAll(Pairs&, float) {}
template <class Half>
__device__ __forceinline__ void RoundAll(Pairs& pairs, Half type) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float2 rounded = UnpackPair(PackPair(pairs.x[i], pairs.y[i], type), type);
    pairs.x[i] = rounded.x;
    pairs.y[i] = rounded.y;
  }
}

// Stores the pairs in the pool: their first elements at `place`, the second ones `half` further on.
template <Access kAccess>
__device__ __forceinline__ void StorePairsToSlot(const Pairs& pairs, int half, const KvTarget& to,
                                                 KvPlace place) {
  place.count = min(half - place.at, kChunk);
  StoreToSlot<kAccess>(pairs.x, to, place);
  place.at += half;
  StoreToSlot<kAccess>(pairs.y, to, place);
}

template <class T, Storing kStoring, Access kAccess>
__global__ void __launch_bounds__(kMaxThreads,
                                  kStoring == Storing::kYes && kAccess == Access::kVectors
                                      ? kBlocksPerSm
                                      : 1) RotateHeads(RopeParams<T> p, KvTarget to) {
  ptx::GridDependencyLaunch();
  const int half = p.head_dim / 2;
  const int thread = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int num_all = p.num_heads + p.num_kv_heads + p.num_stored;
  const int at = (thread & (p.lanes - 1)) * kChunk;
  const int index = thread >> p.lanes_shift;
  const bool present = index < num_all && at < half;
  // Lanes that have no part of a head read what others read.
  const int place = present ? at : 0;
  const Head<T> head = HeadOf(p, min(index, num_all - 1));
  ptx::GridDependencyWait();
  const auto step = static_cast<int32_t>(gridDim.x);
  auto token = static_cast<int32_t>(blockIdx.x);
  int32_t next_position = p.positions[token];
  for (; token < p.num_tokens; token += step) {
    const int64_t position = next_position;
    const int64_t slot = kStoring == Storing::kYes ? to.slots[token] : -1;
    T* const row = head.rows[token];
    Pairs pairs;
    Pairs angles;
    LoadPairs<kAccess>(row, place, half, pairs);
    LoadChunk<kAccess>(p.cos[position], place, half, angles.x);
    LoadChunk<kAccess>(p.sin[position], place, half, angles.y);
    if (token + step < p.num_tokens) next_position = p.positions[token + step];
    float scale = 1;
    if (p.q_norm != nullptr || p.k_norm != nullptr) scale = NormScale(p, pairs, present);
    if (!present) continue;
    if (head.rotated) {
      if (head.norm != nullptr) {
        Pairs weights;
        LoadPairs<kAccess>(head.norm, at, half, weights);
        ApplyNorm(weights, scale, pairs);
      }
      Rotate(angles, pairs);
      StorePairs<kAccess>(pairs, at, half, row);
    }
    if (slot < 0 || head.kv_head < 0) continue;
    if (head.rotated) RoundAll(pairs, T());
    const KvPart part = head.rotated ? KvPart::kKey : KvPart::kValue;
    StorePairsToSlot<kAccess>(pairs, half, to, {slot, part, head.kv_head, at});
  }
}

template <class T>
RopeParams<T> ParamsOf(const RopeArgs& args, const TensorView& v) {
  const auto head_dim = static_cast<int32_t>(args.q.shape[2]);
  const auto chunks = static_cast<uint32_t>((head_dim / 2 + kChunk - 1) / kChunk);
  const uint32_t lanes = std::bit_ceil(chunks);
  return {.q = RowsOf<T>(args.q),
          .k = RowsOf<T>(args.k),
          .v = RowsOf<T>(v),
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
          .inverse_dim = 1.0f / static_cast<float>(head_dim),
          .lanes = static_cast<int32_t>(lanes),
          .lanes_shift = std::countr_zero(lanes),
          .num_tokens = static_cast<int32_t>(args.q.rows())};
}

// The launch: thread blocks (x, y), where those along x take tokens in turn and y is a part of the
// heads.
template <class T>
LaunchShape ShapeOf(const LaunchTarget& on, const RopeParams<T>& p) {
  const int threads = (p.num_heads + p.num_kv_heads + p.num_stored) * p.lanes;
  const int parts = (threads + kMaxThreads - 1) / kMaxThreads;
  const int32_t blocks = std::max(kBlocksPerSm * on.num_sms / parts, 1);
  return {.grid = dim3(static_cast<unsigned>(std::min(p.num_tokens, blocks)),
                       static_cast<unsigned>(parts)),
          .block = dim3(static_cast<unsigned>(std::min((threads + 31) / 32 * 32, kMaxThreads))),
          .after_previous = true};
}

// kVectors if all rows are aligned to 16 bytes and both halves of a head are whole chunks of 8.
Access RopeAccess(const RopeArgs& args) {
  if (args.q.shape[2] % (2 * kChunk) != 0) return Access::kElements;
  return AccessOf({args.q, args.k, args.cos, args.sin, args.q_norm, args.k_norm});
}

}  // namespace

cudaError_t Rope(const LaunchTarget& on, const RopeArgs& args) {
  if (args.q.shape[2] > kMaxHeadDim) return cudaErrorInvalidValue;  // the pool has less
  const bool vectors = RopeAccess(args) == Access::kVectors;
  return WithActivationType(args.q.dtype, [&](auto type) {
    using T = decltype(type);
    const RopeParams<T> params = ParamsOf<T>(args, TensorView());
    const auto kernel = vectors ? RotateHeads<T, Storing::kNo, Access::kVectors>
                                : RotateHeads<T, Storing::kNo, Access::kElements>;
    return Launch(kernel, ShapeOf(on, params), on.stream, params, KvTarget());
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
    return Launch(kernel, ShapeOf(on, params), on.stream, params, TargetOf(store));
  });
}

}  // namespace tandem::cuda
