#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/ptx.cuh"

// What the prefill kernels share: their arguments, which keys the rows of a tile see, softmax with
// the scale folded in, and results, whole or partial.

namespace tandem::cuda {

// AttentionArgs as a kernel takes them; strides in elements.
struct PrefillParams {
  const PrefillTile* tiles;
  float* partials;
  const void* q;
  void* out;
  float* lse;  // null: not wanted
  PagedKv kv;
  LogitRule rule;
  float score_scale;  // from a score, after a cap where there is one, to a logit in powers of two
  float v_scale;
  const int32_t* query_starts;
  const int32_t* context_lens;
  const int32_t* table_ids;
  const int32_t* table_starts;
  int64_t q_stride;
  int64_t out_stride;
  int64_t lse_stride;
  int32_t group;  // query heads of a KV head
  int32_t window;
  DType act;  // of q and out
};

inline PrefillParams MakePrefillParams(const AttentionArgs& args, const PrefillWork& work) {
  const LogitRule rule = MakeLogitRule(args);
  return {.tiles = work.tiles,
          .partials = work.partials,
          .q = args.q.data,
          .out = args.out.data,
          .lse = static_cast<float*>(args.lse.data),
          .kv = MakePagedKv(args.pool, args.layer),
          .rule = rule,
          .score_scale = rule.cap == 0 ? rule.scale : 1.0f,
          .v_scale = args.pool.v_scale,
          .query_starts = args.query_starts.device(),
          .context_lens = args.context_lens.device(),
          .table_ids = args.block_tables.ids.device(),
          .table_starts = args.block_tables.starts.device(),
          .q_stride = args.q.row_stride,
          .out_stride = args.out.row_stride,
          .lse_stride = args.lse.row_stride,
          .group = static_cast<int32_t>(args.q.shape[1] / args.pool.num_kv_heads),
          .window = args.window,
          .act = args.q.dtype};
}

// A tile as a thread block works on it; kept in shared memory, since registers are scarce.
struct TileView {
  PrefillTile tile;
  int32_t first_token;     // row of q that has packed row 0
  int32_t first_position;  // position of packed row 0
  int32_t first_seen;      // the lowest position that any row of the tile sees
  int32_t all_see_begin;   // all rows see the keys [all_see_begin, all_see_end)
  int32_t all_see_end;
  const int32_t* table;  // block table of the sequence

  // The last token that a packed row sees.
  __device__ __forceinline__ int32_t LastSeen(const PrefillParams& p, int packed) const {
    return first_position + packed / p.group;
  }

  // The block that holds a key; for a key beside those that the tile sees, the nearest block that
  // holds one of them: table entries that no row sees are not read, and such keys are masked.
  __device__ __forceinline__ int32_t BlockOf(const PrefillParams& p, int key) const {
    const int32_t last = (tile.key_end - 1) >> p.kv.block_shift;
    const int32_t first = min(first_seen >> p.kv.block_shift, last);
    return table[min(max(key >> p.kv.block_shift, first), last)];
  }

  // Index of a packed row's first element, in q or in out.
  __device__ __forceinline__ int64_t RowIndex(const PrefillParams& p, int packed, int head_dim,
                                              int64_t stride) const {
    const int token = packed / p.group;
    const int head = tile.kv_head * p.group + packed - token * p.group;
    return (first_token + token) * stride + int64_t{head} * head_dim;
  }
};

__device__ __forceinline__ TileView MakeTileView(const PrefillParams& p, const PrefillTile& tile) {
  TileView view;
  view.tile = tile;
  view.first_token = p.query_starts[tile.seq];
  const int32_t q_len = p.query_starts[tile.seq + 1] - view.first_token;
  view.first_position = p.context_lens[tile.seq] - q_len;
  view.table = p.table_ids + p.table_starts[tile.seq];
  const int32_t low = view.LastSeen(p, tile.row_begin);
  const int32_t high = view.LastSeen(p, tile.row_end - 1);
  view.first_seen = p.window > 0 ? max(low + 1 - p.window, 0) : 0;
  view.all_see_begin = p.window > 0 ? max(high + 1 - p.window, 0) : 0;
  view.all_see_end = min(low + 1, tile.key_end);
  return view;
}

// Eight elements of q from `index` on, rounded to what the tensor cores multiply.
template <class Type>
__device__ __forceinline__ uint4 LoadQueries(const PrefillParams& p, int64_t index) {
  constexpr DType kType = std::is_same_v<Type, ptx::Bf16> ? DType::kBF16 : DType::kF16;
  const auto* from = static_cast<const unsigned char*>(p.q) + index * ActivationBytes(p.act);
  if (p.act == kType) return *reinterpret_cast<const uint4*>(from);
  float x[8];
  LoadEight(from, p.act, x);
  return make_uint4(Pack<Type>(x[0], x[1]), Pack<Type>(x[2], x[3]), Pack<Type>(x[4], x[5]),
                    Pack<Type>(x[6], x[7]));
}

// Copies eight elements of q from `index` on to shared memory. Where nothing is to be rounded it is
// one of the lane's asynchronous copies, in the group that it closes next.
template <class Type>
__device__ __forceinline__ void CopyQueries(const PrefillParams& p, int64_t index,
                                            unsigned char* to) {
  constexpr DType kType = std::is_same_v<Type, ptx::Bf16> ? DType::kBF16 : DType::kF16;
  if (p.act == kType) {
    ptx::CpAsync16(to, static_cast<const uint16_t*>(p.q) + index);
  } else {
    *reinterpret_cast<uint4*>(to) = LoadQueries<Type>(p, index);
  }
}

// Widens sixteen fp8 to two 16-byte chunks of f16.
__device__ __forceinline__ void WidenF8(uint4 packed, uint4 (&wide)[2]) {
  const auto low = [](uint32_t quad) { return ptx::E4m3x2ToF16x2(static_cast<uint16_t>(quad)); };
  const auto high = [](uint32_t quad) {
    return ptx::E4m3x2ToF16x2(static_cast<uint16_t>(quad >> 16));
  };
  wide[0] = make_uint4(low(packed.x), high(packed.x), low(packed.y), high(packed.y));
  wide[1] = make_uint4(low(packed.z), high(packed.z), low(packed.w), high(packed.w));
}

// Stores x and y as two neighbouring elements of a row of activations.
__device__ __forceinline__ void StorePair(void* to, int64_t index, DType dtype, float x, float y) {
  if (dtype == DType::kF32) {
    *reinterpret_cast<float2*>(static_cast<float*>(to) + index) = make_float2(x, y);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(to) + index) =
        dtype == DType::kBF16 ? ptx::PackBf16(x, y) : ptx::PackF16(x, y);
  }
}

// What a row's weighted sums of V are multiplied by to become its output: 0 for a row that has seen
// no key, NaN where the weights' sum is NaN.
__device__ __forceinline__ float RowFactor(const PrefillParams& p, float sum) {
  return sum == 0 ? 0.0f : p.v_scale * ptx::Rcp(sum);
}

// The softmax of a row so far, kept in scores, which are logits before their scale.
struct SoftmaxRow {
  float max = -kInfinity;  // of the scores
  float sum = 0;           // of the weights of this lane's own columns

  // Takes in the maximum of more scores, whose weights are then Exp2((score - base) * scale): with
  // the difference taken first, the largest weighs exactly 1, and tiles that change no maximum
  // change no bit. Returns what everything accumulated before is to be multiplied by.
  __device__ __forceinline__ float Raise(float more, float scale, float& base) {
    const float before = max;
    max = fmaxf(before, more);
    base = FiniteMax(max);
    const float rescale = ptx::Exp2((before - base) * scale);
    sum *= rescale;
    return rescale;
  }
};

// Whether any of eight 16-bit floats is infinite or NaN: their exponents are all ones.
template <class Type>
__device__ __forceinline__ bool AnyNotFinite(uint4 v) {
  constexpr uint32_t kExponent = std::is_same_v<Type, ptx::Bf16> ? 0x7f80u : 0x7c00u;
  const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
  bool found = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    found |= (pairs[i] & kExponent) == kExponent;
    found |= (pairs[i] >> 16 & kExponent) == kExponent;
  }
  return found;
}

// V may hold infinities or NaN at keys that some rows of a tile do not see, and 0 * NaN is NaN. So
// in tiles that not every row sees whole, such values are replaced by 0 and their keys noted here;
// a row that does see such a key gets NaN as its score.
template <int kKeys>
struct SpoiledKeys {
  int32_t last_tile;       // the last tile with a spoiled key
  int32_t tile_of[kKeys];  // the last tile in which this key was spoiled
};

// Overwrites a chunk of V with 0 if it holds an infinity or NaN; returns whether it did.
template <class Type>
__device__ __forceinline__ bool Cleanse(unsigned char* chunk) {
  if (!AnyNotFinite<Type>(*reinterpret_cast<const uint4*>(chunk))) return false;
  *reinterpret_cast<uint4*>(chunk) = make_uint4(0, 0, 0, 0);
  return true;
}

// The size of a partial result: [tile_rows][head_dim] sums of weighted V, the maxima of the tile's
// rows in powers of two, and their sums of weights.
__host__ __device__ constexpr size_t PartialFloats(int tile_rows, int head_dim) {
  return static_cast<size_t>(tile_rows) * (head_dim + 2);
}

// Stores a lane's share of a packed row: the columns 8d + lane % 4 * 2 and the next, whose sums
// pair_of(d) gives. `row` has the sum of the quad.
template <int kRows, int D, class PairOf>
__device__ __forceinline__ void StoreRow(const PrefillParams& p, const TileView& view, int packed,
                                         SoftmaxRow row, const PairOf& pair_of) {
  const int quad_lane = static_cast<int>(threadIdx.x) % 4;
  const float max = row.max * p.score_scale;
  if (view.tile.partial >= 0) {
    const int tile_row = packed - view.tile.row_begin;
    float* partial = p.partials + view.tile.partial * static_cast<int64_t>(PartialFloats(kRows, D));
    float* to = partial + tile_row * D + quad_lane * 2;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) *reinterpret_cast<float2*>(to + 8 * d) = pair_of(d);
    if (quad_lane == 0) {
      partial[kRows * D + tile_row] = max;
      partial[kRows * D + kRows + tile_row] = row.sum;
    }
    return;
  }
  const int64_t begin = view.RowIndex(p, packed, D, p.out_stride) + quad_lane * 2;
  const float factor = RowFactor(p, row.sum);
  // The branch by type is outside the loop over the pairs.
  const auto store_as = [&](auto act) {
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const float2 pair = pair_of(d);
      StorePair(p.out, begin + 8 * d, act.value, pair.x * factor, pair.y * factor);
    }
  };
  if (p.act == DType::kBF16) {
    store_as(std::integral_constant<DType, DType::kBF16>());
  } else if (p.act == DType::kF16) {
    store_as(std::integral_constant<DType, DType::kF16>());
  } else {
    store_as(std::integral_constant<DType, DType::kF32>());
  }
  if (p.lse != nullptr && quad_lane == 0) {
    p.lse[view.RowIndex(p, packed, 1, p.lse_stride)] = (max + ptx::Log2(row.sum)) * kLn2;
  }
}

// ---- functions that other files of prefill define

// Whether q and the pool are such that tensor cores can multiply them (prefill.cu).
bool FitsTensorCores(const LaunchTarget& on, const AttentionArgs& args);

// Joins partial results (combine_prefill.cu).
cudaError_t CombinePrefill(const LaunchTarget& on, const AttentionArgs& args,
                           const PrefillWork& work, int tile_rows);

// The portable kernel for each type of the pool (prefill_bf16.cu, ...).
cudaError_t PrefillBf16(const LaunchTarget& on, const AttentionArgs& args, const PrefillWork& work);
cudaError_t PrefillF16(const LaunchTarget& on, const AttentionArgs& args, const PrefillWork& work);
cudaError_t PrefillF8(const LaunchTarget& on, const AttentionArgs& args, const PrefillWork& work);

// The kernel for sm_90a (prefill_sm90.cu).
bool TakesHopperPrefill(const LaunchTarget& on, const AttentionArgs& args);
PrefillTiling HopperTiling(const LaunchTarget& on);
cudaError_t HopperPrefill(const LaunchTarget& on, const AttentionArgs& args,
                          const PrefillWork& work);

}  // namespace tandem::cuda
