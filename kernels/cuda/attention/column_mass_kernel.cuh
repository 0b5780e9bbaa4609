#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention/prefill_tile.cuh"

// Column mass (ColumnMassArgs): reads K once more for the last rows of each sequence. A thread
// block owns some keys of one sequence and KV head and goes over all rows, so that each sum is one
// thread's and its order does not depend on the batch. The weights are exact, since the prefill has
// left the rows' lse.

namespace tandem::cuda {

inline constexpr int kMassWarps = 4;
inline constexpr int kMassThreads = kMassWarps * kWarpLanes;
inline constexpr int kMassWarpKeys = 32;
inline constexpr int kMassKeys = kMassWarps * kMassWarpKeys;
inline constexpr int kMassRows = 64;      // query rows that a block handles at a time
inline constexpr int kMassSlabKeys = 16;  // keys of a slab, which lie in one block of the pool

struct MassParams {
  PrefillParams attention;
  float* mass;
  int64_t mass_stride;  // from sequence to sequence
  int32_t max_tokens;
  int32_t last_rows;
  int32_t rows_behind;
  float decay2;  // log2 of the decay

  // What the weights of a packed row of `tile` are multiplied by; 1 exactly where nothing decays.
  __device__ __forceinline__ float FactorOf(const PrefillTile& tile, int packed) const {
    const int rows_after = (tile.row_end - 1) / attention.group - packed / attention.group;
    const uint32_t behind = static_cast<uint32_t>(rows_behind) + static_cast<uint32_t>(rows_after);
    return ptx::Exp2(decay2 * static_cast<float>(behind / ColumnMassArgs::kRowsPerDecay));
  }
};

// The last rows of a sequence, as if they were a tile over the whole context.
__device__ __forceinline__ TileView LastRows(const MassParams& params, int seq, int kv_head) {
  const PrefillParams& p = params.attention;
  const int32_t q_len = p.query_starts[seq + 1] - p.query_starts[seq];
  const PrefillTile tile = {.seq = seq,
                            .kv_head = kv_head,
                            .row_begin = max(q_len - params.last_rows, 0) * p.group,
                            .row_end = q_len * p.group,
                            .key_begin = 0,
                            .key_end = p.context_lens[seq],
                            .partial = -1,
                            .num_partials = 0};
  return MakeTileView(p, tile);
}

// The query rows that a thread block handles at a time.
struct RowsInUse {
  int32_t last_seen[kMassRows];  // the last key that the row sees; -1: no such row
  float lse2[kMassRows];         // the row's log-sum-exp to base 2
  float factor[kMassRows];       // by which the row's weights are multiplied
};

template <class Math, bool kFp8, int D>
class MassBlock {
 public:
  static constexpr int kRowBytes = D * (kFp8 ? 1 : 2);  // of K in the pool
  static constexpr int kRowChunks = kRowBytes / kChunkBytes;
  static constexpr int kSharedBytes = (kMassKeys + kMassRows) * D * 2;

  __device__ __forceinline__ MassBlock(const MassParams& params, const TileView& view,
                                       RowsInUse& rows, int first_key)
      : params_(params),
        p_(params.attention),
        view_(view),
        rows_(rows),
        first_key_(first_key),
        keys_(ptx::DynamicShared<unsigned char>()),
        queries_(keys_ + kMassKeys * D * 2),
        warp_(static_cast<int>(threadIdx.x) / kWarpLanes),
        lane_(static_cast<int>(threadIdx.x) % kWarpLanes) {}

  // Adds up the masses of the warp's keys. Those of keys lane / 4 and lane / 4 + 8 of each slab end
  // up in the four lanes of that quad, of which each has the sums over its own rows.
  __device__ __forceinline__ void Run(float (&sums)[2][2]) {
    for (int slab = 0; slab < kMassWarpKeys / kMassSlabKeys; ++slab) LoadKeys(slab);
    const int end = EndOfRows();
    for (int begin = FirstRows(); begin < end; begin += kMassRows) {
      __syncthreads();
      LoadRows(begin);
      __syncthreads();
      for (int n = 0; n < kMassRows && begin + n < end; n += 16) AddWeights(n, sums);
    }
  }

 private:
  // The first row to begin with: rows before it have positions below the first key of the block, so
  // that they see none of its keys. Rows are skipped in whole steps of kMassRows, so that each row
  // stays with the same lanes as when none is skipped.
  __device__ __forceinline__ int FirstRows() const {
    const int64_t first_seeing = int64_t{max(first_key_ - view_.first_position, 0)} * p_.group;
    const int64_t skipped = (first_seeing - view_.tile.row_begin) / kMassRows * kMassRows;
    return view_.tile.row_begin + static_cast<int>(max(skipped, int64_t{0}));
  }

  // The end of the rows that see a key of the block: rows from there on have windows that begin
  // behind its last key.
  __device__ __forceinline__ int EndOfRows() const {
    if (p_.window == 0) return view_.tile.row_end;
    const int64_t last_seeing = int64_t{first_key_} + kMassKeys - 1 + p_.window - 1;
    const int64_t end = (last_seeing - view_.first_position + 1) * p_.group;
    return static_cast<int>(min(end, int64_t{view_.tile.row_end}));
  }

  static __device__ __forceinline__ int TileByte(int row, int chunk) {
    return SwizzledChunk<D / 8>(row, chunk) * kChunkBytes;
  }

  // Loads K of a slab into shared memory, widened where it is fp8.
  __device__ __forceinline__ void LoadKeys(int slab) {
    const int tile_key = warp_ * kMassWarpKeys + slab * kMassSlabKeys;
    const int key = first_key_ + tile_key;
    const auto* from =
        reinterpret_cast<const uint4*>(p_.kv.Keys(view_.BlockOf(p_, key), view_.tile.kv_head, key));
#pragma unroll
    for (int i = 0; i < kMassSlabKeys * kRowChunks / kWarpLanes; ++i) {
      const int chunk = i * kWarpLanes + lane_;
      const uint4 packed = ptx::LoadStreaming(from + chunk);
      const int row = tile_key + chunk / kRowChunks;
      if constexpr (kFp8) {
        uint4 wide[2];
        WidenF8(packed, wide);
        for (int half = 0; half < 2; ++half) {
          const int at = TileByte(row, chunk % kRowChunks * 2 + half);
          *reinterpret_cast<uint4*>(keys_ + at) = wide[half];
        }
      } else {
        *reinterpret_cast<uint4*>(keys_ + TileByte(row, chunk % kRowChunks)) = packed;
      }
    }
  }

  __device__ __forceinline__ void LoadRows(int begin) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kMassRows * D / 8; i += kMassThreads) {
      const int row = i / (D / 8);
      if (begin + row >= view_.tile.row_end) break;
      const int64_t index = view_.RowIndex(p_, begin + row, D, p_.q_stride) + i % (D / 8) * 8;
      *reinterpret_cast<uint4*>(queries_ + TileByte(row, i % (D / 8))) =
          LoadQueries<Math>(p_, index);
    }
    if (thread >= kMassRows) return;
    const int packed = begin + thread;
    const bool is_row = packed < view_.tile.row_end;
    rows_.last_seen[thread] = is_row ? view_.LastSeen(p_, packed) : -1;
    rows_.lse2[thread] = is_row ? p_.lse[view_.RowIndex(p_, packed, 1, p_.lse_stride)] * kLog2E : 0;
    rows_.factor[thread] = is_row ? params_.FactorOf(view_.tile, packed) : 0;
  }

  // Adds the weights of 16 query rows, from `n` on of those in use. The products have keys as rows.
  __device__ __forceinline__ void AddWeights(int n, float (&sums)[2][2]) const {
    float s[2][2][4] = {};
#pragma unroll 4
    for (int k = 0; k < D / 16; ++k) {
      uint32_t b[4];
      const int row = n + lane_ / 16 * 8 + lane_ % 8;
      ptx::LdMatrixX4(b, queries_ + TileByte(row, 2 * k + lane_ / 8 % 2));
#pragma unroll
      for (int slab = 0; slab < 2; ++slab) {
        uint32_t a[4];
        const int key = warp_ * kMassWarpKeys + slab * kMassSlabKeys + lane_ % 16;
        ptx::LdMatrixX4(a, keys_ + TileByte(key, 2 * k + lane_ / 16));
        Mma<Math>(s[slab][0], a, b[0], b[1]);
        Mma<Math>(s[slab][1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = n + j / 2 * 8 + lane_ % 4 * 2 + j % 2;
      const int last = rows_.last_seen[row];
      const int before = p_.window > 0 ? last - p_.window : -1;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key =
            first_key_ + warp_ * kMassWarpKeys + i / 2 * kMassSlabKeys + i % 2 * 8 + lane_ / 4;
        const float logit = p_.rule.Logit2(s[i / 2][j / 2][i % 2 * 2 + j % 2]);
        if (key > last || key <= before) continue;
        float& sum = sums[i / 2][i % 2];
        sum = __fmaf_rn(ptx::Exp2(logit - rows_.lse2[row]), rows_.factor[row], sum);
      }
    }
  }

  const MassParams& params_;
  const PrefillParams& p_;
  const TileView& view_;
  RowsInUse& rows_;
  const int first_key_;
  unsigned char* const keys_;
  unsigned char* const queries_;
  const int warp_;
  const int lane_;
};

template <class Math, bool kFp8, int D>
__global__ void __launch_bounds__(kMassThreads) ColumnMassKernel(MassParams params) {
  __shared__ TileView view;
  __shared__ RowsInUse rows;
  const int first_key = static_cast<int>(blockIdx.x) * kMassKeys;
  const int thread = static_cast<int>(threadIdx.x);
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  if (thread == 0) {
    view = LastRows(params, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  }
  __syncthreads();
  float sums[2][2] = {};
  const bool has_rows = view.tile.row_begin < view.tile.row_end;
  if (has_rows && first_key < view.tile.key_end && first_key + kMassKeys > view.first_seen) {
    MassBlock<Math, kFp8, D>(params, view, rows, first_key).Run(sums);
  }
  float* mass = params.mass + blockIdx.z * params.mass_stride +
                static_cast<int64_t>(blockIdx.y) * params.max_tokens;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sum = QuadSum(sums[i / 2][i % 2]);
    const int key = first_key + thread / kWarpLanes * kMassWarpKeys + i / 2 * kMassSlabKeys +
                    i % 2 * 8 + thread % kWarpLanes / 4;
    if (thread % 4 == 0 && key < params.max_tokens) mass[key] = sum;
  }
}

}  // namespace tandem::cuda
