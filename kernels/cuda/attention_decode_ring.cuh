#pragma once

#include "kernels/cuda/attention_decode.cuh"

// How K and V come to a warp of decode attention: in chunks of 16 keys, through a ring in shared
// memory of its own.

namespace tandem::cuda {

// Waits until the newest `groups` of the lane's groups may still be under way, an odd number.
__device__ __forceinline__ void WaitForGroups(int groups) {
  switch (groups) {
    case 1:
      return ptx::CpAsyncWait<1>();
    case 3:
      return ptx::CpAsyncWait<3>();
    case 5:
      return ptx::CpAsyncWait<5>();
    case 7:
      return ptx::CpAsyncWait<7>();
    case 9:
      return ptx::CpAsyncWait<9>();
    default:
      return ptx::CpAsyncWait<2 * kMaxStages - 1>();
  }
}

// The chunks of a piece that one warp takes, counted from the start of the context:
// first, first + kDecodeWarps, ... below end. A key's warp depends on its position alone.
struct WarpChunks {
  int32_t first;
  int32_t end;

  __device__ __forceinline__ WarpChunks(const SplitRule& rule, const SplitPiece& piece, int warp) {
    const KeyRange seen = VisibleKeys(rule, piece.context_len);
    const int32_t begin_key = max(piece.unit_begin * rule.unit_tokens, seen.begin);
    const int32_t end_key = min(piece.unit_end * rule.unit_tokens, seen.end);
    first = begin_key / kChunkTokens;
    first += (warp - first) & (kDecodeWarps - 1);
    end = (end_key + kChunkTokens - 1) / kChunkTokens;
  }
};

// Fills a warp's ring with its chunks of all pieces of the part, one after the other.
template <int kRowBytes>
class ChunkLoader {
 public:
  static constexpr int kRowChunks = kRowBytes / kChunkBytes;
  static constexpr int kTileBytes = kChunkTokens * kRowBytes;

  __device__ __forceinline__ ChunkLoader(const DecodeParams& params, const SplitWalk& walk,
                                         unsigned char* ring)
      : params_(params), walk_(walk), ring_(ring) {
    FindChunk();
  }

  // Asks for K of the next chunk, in `slot` of the ring.
  __device__ __forceinline__ void LoadKeys(int slot) {
    if (chunk_ < end_) {
      keys_ = params_.kv.Keys(block_, kv_head_, chunk_ * kChunkTokens);
      LoadRows(ring_ + slot * 2 * kTileBytes, keys_);
    }
    ptx::CpAsyncCommit();
  }

  // Asks for its V, and goes on to the chunk after it.
  __device__ __forceinline__ void LoadValues(int slot) {
    if (chunk_ < end_) {
      LoadRows(ring_ + (slot * 2 + 1) * kTileBytes, keys_ + params_.kv.value_bytes);
      chunk_ += kDecodeWarps;
      FindChunk();
    }
    ptx::CpAsyncCommit();
  }

 private:
  // Goes on to the next piece with a chunk for this warp, if need be, and reads the chunk's block
  // from the table well before it is needed.
  __device__ __forceinline__ void FindChunk() {
    SplitPiece piece;
    while (chunk_ >= end_ && walk_.Next(&piece)) {
      const WarpChunks chunks(params_.rule, piece, threadIdx.x / kWarpLanes);
      chunk_ = chunks.first;
      end_ = chunks.end;
      seen_ = VisibleKeys(params_.rule, piece.context_len);
      kv_head_ = piece.kv_head / params_.heads.row_groups;
      if (chunk_ < end_) table_ = params_.block_ids + params_.block_starts[piece.seq];
    }
    if (chunk_ < end_) block_ = table_[chunk_ * kChunkTokens >> params_.kv.block_shift];
  }

  // Rows that are not seen are zeros: what lies there may be NaN, and 0 times that is NaN.
  __device__ __forceinline__ void LoadRows(unsigned char* tile, const unsigned char* rows) const {
    const int lane = threadIdx.x % kWarpLanes;
    const int first_key = chunk_ * kChunkTokens;
#pragma unroll
    for (int i = 0; i < kTileBytes / kChunkBytes / kWarpLanes; ++i) {
      const int index = i * kWarpLanes + lane;
      const int row = index / kRowChunks;
      const int key = first_key + row;
      ptx::CpAsync16Zfill(tile + SwizzledChunk<kRowChunks>(row, index % kRowChunks) * kChunkBytes,
                          rows + index * kChunkBytes, key >= seen_.begin && key < seen_.end);
    }
  }

  const DecodeParams& params_;
  SplitWalk walk_;
  unsigned char* ring_;
  int32_t chunk_ = 0;
  int32_t end_ = 0;  // no chunk when chunk_ >= end_
  KeyRange seen_ = {0, 0};
  int32_t kv_head_ = 0;
  int32_t block_ = 0;
  const int32_t* table_ = nullptr;
  const unsigned char* keys_ = nullptr;
};

}  // namespace tandem::cuda
