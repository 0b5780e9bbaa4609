#pragma once

#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/attention/decode_ring.cuh"

// Decode attention for every architecture since sm_80. A thread block takes one part of the plan.
// Its rows are the query heads of one KV head, padded to the 16 of mma.m16n8k16, so that K and V
// are read once for all of them. Of every 64 keys, warp w takes the keys [16w, 16w + 16), which lie
// in one block of the pool: each warp has a ring of K and V of its own, filled by cp.async, and
// goes through it without a barrier. At the end of a piece the four results are merged.
//
// The ring goes on across the end of a piece: while one piece is merged, the keys of the next ones
// are on their way. K of a slot is asked for again as soon as the product with Q is done, V after
// the product with the weights, so that nearly the whole ring is in flight.
// Source: Dao, "FlashAttention-2", 2023; Hong et al., "FlashDecoding++", 2023.

namespace tandem::cuda {

// A thread block of decode attention: `Type` is what the tensor cores multiply, kFp8 whether K and
// V are f8e4m3 (and Type is f16, in which they are exact) or of that type themselves.
//
// An f8 row is read by the same 16-bit fragments as others, which gives a lane twice as many
// neighbouring elements as a product takes. So within each 16 dimensions K's 4t, 4t+1, 4t+2, 4t+3
// are the products' 2t, 2t+1, 2t+8, 2t+9, with Q stored in that order; and V's even dimensions are
// the columns of one accumulator, its odd ones those of the next.
template <class Type, bool kFp8, int kDim>
class DecodeBlock {
 public:
  static constexpr int kRowBytes = kFp8 ? kDim : 2 * kDim;
  static constexpr int kSteps = kDim / 16;  // products of 16 dimensions
  // Q stays in registers, where there is room beside the accumulators.
  static constexpr bool kHoldQueries = kDim <= 128;
  using Loader = ChunkLoader<kRowBytes>;

  __device__ __forceinline__ DecodeBlock(const DecodeParams& params, unsigned char* shared)
      : params_(params),
        merge_(reinterpret_cast<float*>(shared)),
        queries_(shared),
        state_(reinterpret_cast<float*>(shared + DecodeMergeBytes(kDim))),
        ring_(shared + DecodeMergeBytes(kDim) + kDecodeStateBytes +
              Warp() * params.stages * 2 * Loader::kTileBytes),
        key_pairs_(Lane() / 16 * 8 + Lane() % 8, Lane() / 8 % 2),
        value_pairs_(Lane() % 16, Lane() / 16) {}

  __device__ __forceinline__ void Run() {
    const SplitPart part = params_.plan.parts[blockIdx.x];
    if (part.num_pairs == 0) return;
    SplitWalk walk(params_.rule, params_.Line(), blockIdx.x, part);
    Loader loader(params_, walk, ring_);
    for (int slot = 0; slot < params_.stages; ++slot) {
      loader.LoadKeys(slot);
      loader.LoadValues(slot);
    }
    while (walk.Next(&piece_)) {
      rows_ = params_.heads.RowsOf(piece_.kv_head);
      head_ = params_.heads.FirstHead(piece_.kv_head);
      StoreQueries();
      __syncthreads();
      Attend(loader);
      Merge();
      __syncthreads();  // before the next queries
    }
  }

 private:
  static __device__ __forceinline__ int Lane() { return threadIdx.x % kWarpLanes; }
  static __device__ __forceinline__ int Warp() { return threadIdx.x / kWarpLanes; }

  // Writes the piece's rows of Q to shared memory, and zeros below them.
  __device__ __forceinline__ void StoreQueries() {
    for (int index = threadIdx.x; index < kRowsPerTile * kDim / 8; index += kDecodeThreads) {
      const int row = index / (kDim / 8);
      const int eight = index % (kDim / 8);
      float x[8] = {};
      if (row < rows_) {
        LoadEight(params_.Query(piece_.seq, head_ + row) + eight * 8 * ActivationBytes(params_.act),
                  params_.act, x);
      }
      StoreQuery(row, eight, x);
    }
  }

  __device__ __forceinline__ void StoreQuery(int row, int eight, const float (&x)[8]) {
    const uint32_t pairs[4] = {Pack<Type>(x[0], x[1]), Pack<Type>(x[2], x[3]),
                               Pack<Type>(x[4], x[5]), Pack<Type>(x[6], x[7])};
    if constexpr (kFp8) {
      const int half = (eight % 2) * 8;  // bytes
      unsigned char* low = queries_ + SwizzledChunk<kDim / 8>(row, eight & ~1) * kChunkBytes;
      unsigned char* high = queries_ + SwizzledChunk<kDim / 8>(row, eight | 1) * kChunkBytes;
      *reinterpret_cast<uint2*>(low + half) = make_uint2(pairs[0], pairs[2]);
      *reinterpret_cast<uint2*>(high + half) = make_uint2(pairs[1], pairs[3]);
    } else {
      *reinterpret_cast<uint4*>(queries_ + SwizzledChunk<kDim / 8>(row, eight) * kChunkBytes) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }

  __device__ __forceinline__ void LoadQuery(int step, uint32_t (&a)[4]) const {
    const int lane = Lane();
    ptx::LdMatrixX4(
        a, queries_ + SwizzledChunk<kDim / 8>(lane % 16, 2 * step + lane / 16) * kChunkBytes);
  }

  // Loads four 8x8 matrices of 16-bit elements of a tile: tokens 0-7 and 8-15 of the 16-byte chunks
  // `chunk` and chunk + 1 of the rows. The order is tokens first for V, chunks first for K.
  __device__ __forceinline__ void LoadKeyMatrices(const unsigned char* tile, int chunk,
                                                  uint32_t (&b)[4]) const {
    ptx::LdMatrixX4(b, tile + key_pairs_.At(chunk));
  }
  __device__ __forceinline__ void LoadValueMatrices(const unsigned char* tile, int chunk,
                                                    uint32_t (&b)[4]) const {
    ptx::LdMatrixX4Trans(b, tile + value_pairs_.At(chunk));
  }

  // Computes attention over this warp's chunks of the piece, into output_ and softmax_.
  __device__ __forceinline__ void Attend(Loader& loader) {
    softmax_ = SoftmaxRows();
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) output_[i][j] = 0;
    }
    uint32_t queries[kHoldQueries ? kSteps : 1][4];
    if constexpr (kHoldQueries) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) LoadQuery(step, queries[step]);
    }
    const KeyRange seen = VisibleKeys(params_.rule, piece_.context_len);
    const WarpChunks chunks(params_.rule, piece_, Warp());
    float* const masses = params_.scratch.mass_chunks > 0 ? PieceMass() : nullptr;
    const int32_t group = params_.heads.group;
    for (int32_t chunk = chunks.first; chunk < chunks.end; chunk += kDecodeWarps) {
      const unsigned char* keys = ring_ + slot_ * 2 * Loader::kTileBytes;
      WaitForGroups(2 * params_.stages - 1);
      __syncwarp();
      float scores[2][4] = {};
      MultiplyKeys(keys, queries, scores);
      __syncwarp();
      loader.LoadKeys(slot_);
      Weigh(chunk, seen, scores);
      if (masses != nullptr) StoreChunkMass(masses + int64_t{chunk} * group, scores);
      const uint32_t weights[4] = {
          Pack<Type>(scores[0][0], scores[0][1]), Pack<Type>(scores[0][2], scores[0][3]),
          Pack<Type>(scores[1][0], scores[1][1]), Pack<Type>(scores[1][2], scores[1][3])};
      WaitForGroups(2 * params_.stages - 1);
      __syncwarp();
      MultiplyValues(keys + Loader::kTileBytes, weights);
      __syncwarp();
      loader.LoadValues(slot_);
      slot_ = slot_ + 1 == params_.stages ? 0 : slot_ + 1;
    }
  }

  // scores = Q * K^T, 16 rows x 2 * 8 keys.
  template <int kHeld>
  __device__ __forceinline__ void MultiplyKeys(const unsigned char* tile,
                                               const uint32_t (&held)[kHeld][4],
                                               float (&scores)[2][4]) const {
    constexpr int kStepsPerLoad = kFp8 ? 2 : 1;
#pragma unroll
    for (int step = 0; step < kSteps; step += kStepsPerLoad) {
      uint32_t b[4];
      LoadKeyMatrices(tile, kFp8 ? step : 2 * step, b);
#pragma unroll
      for (int i = 0; i < kStepsPerLoad; ++i) {
        uint32_t a[4];
        if constexpr (kHoldQueries) {
#pragma unroll
          for (int j = 0; j < 4; ++j) a[j] = held[step + i][j];
        } else {
          LoadQuery(step + i, a);
        }
        if constexpr (kFp8) {
          Mma<Type>(scores[0], a, Widen(b[i]), Widen(b[i] >> 16));
          Mma<Type>(scores[1], a, Widen(b[2 + i]), Widen(b[2 + i] >> 16));
        } else {
          Mma<Type>(scores[0], a, b[0], b[1]);
          Mma<Type>(scores[1], a, b[2], b[3]);
        }
      }
    }
  }

  // Widens the two e4m3 in the low half of `pair` to f16.
  static __device__ __forceinline__ uint32_t Widen(uint32_t pair) {
    return ptx::E4m3x2ToF16x2(static_cast<uint16_t>(pair));
  }

  // output += weights * V.
  __device__ __forceinline__ void MultiplyValues(const unsigned char* tile,
                                                 const uint32_t (&weights)[4]) {
    if constexpr (kFp8) {
#pragma unroll
      for (int step = 0; step < kSteps; step += 2) {
        uint32_t b[4];
        LoadValueMatrices(tile, step, b);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // A register holds two dimensions of one token, then the same two of the next: sorted by
          // dimension.
          const uint32_t first = ptx::PermuteBytes(b[2 * i], 0x3120);
          const uint32_t second = ptx::PermuteBytes(b[2 * i + 1], 0x3120);
          Mma<Type>(output_[2 * (step + i)], weights, Widen(first), Widen(second));
          Mma<Type>(output_[2 * (step + i) + 1], weights, Widen(first >> 16), Widen(second >> 16));
        }
      }
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t b[4];
        LoadValueMatrices(tile, 2 * step, b);
        Mma<Type>(output_[2 * step], weights, b[0], b[1]);
        Mma<Type>(output_[2 * step + 1], weights, b[2], b[3]);
      }
    }
  }

  // Turns the products of Q with a chunk's keys into weights, and rescales what was accumulated
  // before to the new maxima.
  __device__ __forceinline__ void Weigh(int32_t chunk, const KeyRange& seen,
                                        float (&scores)[2][4]) {
    const int32_t first_key = chunk * kChunkTokens;
    params_.logit.ToLogits(scores);
    if (first_key < seen.begin || first_key + kChunkTokens > seen.end) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int32_t key = first_key + i / 4 * 8 + Lane() % 4 * 2 + i % 2;
        if (key < seen.begin || key >= seen.end) scores[i / 4][i % 4] = -kInfinity;
      }
    }
    float rescale[2];
    softmax_.Add(scores, rescale);
    if (!__any_sync(kAllLanes, rescale[0] != 1 || rescale[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) output_[i][j] *= rescale[j / 2];
    }
  }

  // Where the masses of the piece's chunks begin, those for the lane's rows.
  __device__ __forceinline__ float* PieceMass() const {
    const DecodeHeads& heads = params_.heads;
    const int64_t pair = piece_.seq * int64_t{heads.num_kv_heads} + head_ / heads.group;
    return params_.scratch.chunk_mass + pair * params_.scratch.mass_chunks * heads.group +
           head_ % heads.group + Lane() / 4;
  }

  // Stores the mass of a chunk, log(sum of 2^logit), for each row.
  __device__ __forceinline__ void StoreChunkMass(float* to, const float (&weights)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = QuadSum(weights[0][2 * i] + weights[0][2 * i + 1] + weights[1][2 * i] +
                                weights[1][2 * i + 1]);
      if (Lane() % 4 == 0 && Lane() / 4 + 8 * i < rows_) {
        to[8 * i] = FiniteMax(softmax_.max[i]) + ptx::Log2(sum);
      }
    }
  }

  // Merges the warps' results, eight rows at a time, and writes them out.
  __device__ __forceinline__ void Merge() {
    float scale[2];  // of this warp's part of the lane's two rows
    float log_sum[2];
    MergeState(scale, log_sum);
    for (int half = 0; half * 8 < rows_; ++half) {
      if (half > 0) __syncthreads();  // until all have read the previous rows
      half == 0 ? StoreRows<0>(scale[0]) : StoreRows<1>(scale[1]);
      __syncthreads();
      WriteRows(half * 8, min(8, rows_ - half * 8));
    }
    StoreLogSums(log_sum);  // last, since no other warp waits for it
  }

  __device__ __forceinline__ void MergeState(float (&scale)[2], float (&log_sum)[2]) {
    const int lane = Lane();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = QuadSum(softmax_.sum[i]);
      if (lane % 4 == 0) {
        float* to = state_ + (Warp() * kRowsPerTile + lane / 4 + 8 * i) * 2;
        to[0] = softmax_.max[i];
        to[1] = sum;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* row = state_ + (lane / 4 + 8 * i) * 2;
      float all_max = -kInfinity;
      for (int w = 0; w < kDecodeWarps; ++w) {
        all_max = fmaxf(all_max, row[w * kRowsPerTile * 2]);
      }
      const float base = FiniteMax(all_max);
      float all_sum = 0;
      for (int w = 0; w < kDecodeWarps; ++w) {
        all_sum += row[w * kRowsPerTile * 2 + 1] * ptx::Exp2(row[w * kRowsPerTile * 2] - base);
      }
      const float weight = ptx::Exp2(softmax_.max[i] - base) * params_.value_scale;
      scale[i] = all_sum > 0 ? weight / all_sum : 0.0f;
      log_sum[i] = all_sum > 0 ? base + log2f(all_sum) : -kInfinity;
    }
  }

  // Stores the logarithms of the rows' sums of weights, for the caller (lse) or for the merge of
  // pieces.
  __device__ __forceinline__ void StoreLogSums(const float (&log_sum)[2]) const {
    if (Warp() != 0 || Lane() % 4 != 0) return;
    const DecodeScratch& scratch = params_.scratch;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = Lane() / 4 + 8 * i;
      if (row >= rows_) continue;
      if (piece_.slot >= 0) {
        scratch.LogSums(piece_.slot, params_.heads.rows(), kDim)[row] = log_sum[i];
        continue;
      }
      if (params_.lse != nullptr) {
        params_.lse[piece_.seq * params_.lse_stride + head_ + row] = log_sum[i] * kLn2;
      }
      if (scratch.mass_chunks > 0) {
        scratch.row_lse[int64_t{piece_.seq} * params_.heads.num_heads() + head_ + row] = log_sum[i];
      }
    }
  }

  // Where column `dim` of one of eight rows lies in a warp's share of the merge buffer.
  static __device__ __forceinline__ int MergeIndex(int row, int dim) {
    return SwizzledChunk<kDim / 8>(row, dim / 8) * 8 + dim % 8;
  }

  template <int kHalf>
  __device__ __forceinline__ void StoreRows(float scale) {
    const int row = Lane() / 4;
    const int column = Lane() % 4;
    float* to = merge_ + Warp() * 8 * kDim;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const float(&low)[4] = output_[2 * step];
      const float(&high)[4] = output_[2 * step + 1];
      const float2 first = make_float2(low[2 * kHalf] * scale, low[2 * kHalf + 1] * scale);
      const float2 second = make_float2(high[2 * kHalf] * scale, high[2 * kHalf + 1] * scale);
      if constexpr (kFp8) {
        *reinterpret_cast<float4*>(to + MergeIndex(row, 16 * step + 4 * column)) =
            make_float4(first.x, second.x, first.y, second.y);
      } else {
        *reinterpret_cast<float2*>(to + MergeIndex(row, 16 * step + 2 * column)) = first;
        *reinterpret_cast<float2*>(to + MergeIndex(row, 16 * step + 8 + 2 * column)) = second;
      }
    }
  }

  // Writes rows [first_row, first_row + count) of the tile from the merge buffer to the output, or
  // to the piece's slot.
  __device__ __forceinline__ void WriteRows(int first_row, int count) const {
    const int32_t head = head_ + first_row;
    float* slot =
        piece_.slot < 0 ? nullptr : params_.scratch.Outputs(piece_.slot) + first_row * kDim;
    for (int index = threadIdx.x; index < count * kDim / 4; index += kDecodeThreads) {
      const int row = index / (kDim / 4);
      const int dim = index % (kDim / 4) * 4;
      float4 sum = make_float4(0, 0, 0, 0);
      for (int w = 0; w < kDecodeWarps; ++w) {
        const float4 x =
            *reinterpret_cast<const float4*>(merge_ + w * 8 * kDim + MergeIndex(row, dim));
        sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
      }
      if (slot != nullptr) {
        *reinterpret_cast<float4*>(slot + row * kDim + dim) = sum;
      } else {
        StoreFour(params_.Output(piece_.seq, head + row) + dim * ActivationBytes(params_.act),
                  params_.act, sum);
      }
    }
  }

  const DecodeParams& params_;
  float* const merge_;                                 // [kDecodeWarps][8][kDim]
  unsigned char* const queries_;                       // [16][kDim] of Type, where merge_ is
  float* const state_;                                 // [kDecodeWarps][16] of (max, sum)
  unsigned char* const ring_;                          // this warp's: [stages][K|V][16 rows]
  const SwizzledPairs<Loader::kRowChunks> key_pairs_;  // what the lane passes to ldmatrix for K
  const SwizzledPairs<Loader::kRowChunks> value_pairs_;
  int slot_ = 0;  // ring slot of the next chunk
  SplitPiece piece_ = {};
  int32_t head_ = 0;  // the first query head of the piece
  int rows_ = 0;      // query heads of the piece
  SoftmaxRows softmax_;
  float output_[2 * kSteps][4];
};

#if defined(__CUDA_ARCH__)
inline constexpr int kTargetCapability = __CUDA_ARCH__ / 10;
#else
inline constexpr int kTargetCapability = 90;
#endif

template <class Type, bool kFp8, int kDim>
__global__ void __launch_bounds__(kDecodeThreads, DecodeBlocksPerSm(kDim, kFp8, kTargetCapability))
    AttentionDecodeKernel(DecodeParams params) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  DecodeBlock<Type, kFp8, kDim>(params, ptx::DynamicShared<unsigned char>()).Run();
}

template <int kHeadDim>
DecodeKernel SelectDecodeKernel(DType kv) {
  switch (kv) {
    case DType::kBF16:
      return AttentionDecodeKernel<ptx::Bf16, false, kHeadDim>;
    case DType::kF16:
      return AttentionDecodeKernel<ptx::F16, false, kHeadDim>;
    case DType::kF8E4M3:
      return AttentionDecodeKernel<ptx::F16, true, kHeadDim>;
    default:
      return nullptr;
  }
}

}  // namespace tandem::cuda
