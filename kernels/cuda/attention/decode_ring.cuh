#pragma once

#include "kernels/cuda/attention/decode.cuh"

// How K and V come to a warp of decode attention: in chunks of 16 keys, through a ring in shared
// memory of its own.

namespace tandem::cuda {

// Waits until at most the newest `groups` of the lane's groups of copies are under way: an odd
// number below 2 * kMaxStages. A binary search, since a jump table costs more.
__device__ __forceinline__ void WaitForGroups(int groups) {
  static_assert(kMaxStages == 6);
  if (groups <= 5) {
    if (groups <= 1) {
      ptx::CpAsyncWait<1>();
    } else if (groups <= 3) {
      ptx::CpAsyncWait<3>();
    } else {
      ptx::CpAsyncWait<5>();
    }
  } else if (groups <= 7) {
    ptx::CpAsyncWait<7>();
  } else if (groups <= 9) {
    ptx::CpAsyncWait<9>();
  } else {
    ptx::CpAsyncWait<11>();
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
#pragma unroll
    for (int i = 0; i < kPeriod; ++i) {
      const int index = i * kWarpLanes + Lane();
      const int chunk = SwizzledChunk<kRowChunks>(index / kRowChunks, index % kRowChunks);
      offsets_[i] = ptx::Opaque(chunk * kChunkBytes);  // else computed again for each tile
    }
    FindChunk();
  }

  // Starts the copy of the next chunk's K into `slot` of the ring.
  __device__ __forceinline__ void LoadKeys(int slot) {
    if (chunk_ < end_) {
      const int32_t token = chunk_ * kChunkTokens & ((1 << params_.kv.block_shift) - 1);
      keys_ = head_ + block_ * params_.kv.block_bytes + token * kRowBytes;
      LoadRows(ring_ + slot * 2 * kTileBytes, keys_);
    }
    ptx::CpAsyncCommit();
  }

  // Starts the copy of the V that belongs to the last LoadKeys, and goes on to the next chunk.
  __device__ __forceinline__ void LoadValues(int slot) {
    if (chunk_ < end_) {
      LoadRows(ring_ + (slot * 2 + 1) * kTileBytes, keys_ + params_.kv.value_bytes);
      chunk_ += kDecodeWarps;
      FindChunk();
    }
    ptx::CpAsyncCommit();
  }

 private:
  // How many copies of 16 bytes a lane makes per tile, and after how many of them the swizzle
  // repeats.
  static constexpr int kCopyBytes = kWarpLanes * kChunkBytes;
  static constexpr int kCopies = kTileBytes / kCopyBytes;
  static constexpr int kPeriod =
      kWarpLanes % kRowChunks == 0 ? 8 * kRowChunks / kWarpLanes : kCopies;

  static __device__ __forceinline__ int Lane() { return threadIdx.x % kWarpLanes; }

  // Goes on to the next piece with a chunk for this warp, if need be, and reads the chunk's block
  // from the table well before it is needed.
  __device__ __forceinline__ void FindChunk() {
    SplitPiece piece;
    while (chunk_ >= end_ && !walk_.Done()) {
      // Loaded here so that it is under way together with the context's length, which Next loads.
      const int32_t table_start = params_.block_starts[walk_.Sequence()];
      walk_.Next(&piece);
      const WarpChunks chunks(params_.rule, piece, threadIdx.x / kWarpLanes);
      chunk_ = chunks.first;
      end_ = chunks.end;
      seen_ = VisibleKeys(params_.rule, piece.context_len);
      if (chunk_ >= end_) continue;
      table_ = params_.block_ids + table_start;
      head_ = params_.kv.keys + piece.kv_head / params_.heads.row_groups * params_.kv.head_bytes +
              Lane() * kChunkBytes;
    }
    if (chunk_ < end_) block_ = table_[chunk_ * kChunkTokens >> params_.kv.block_shift];
  }

  // Copies the lane's chunks of a tile. Rows of keys that are not seen become zeros: what lies
  // there may be NaN, and 0 times that is NaN.
  __device__ __forceinline__ void LoadRows(unsigned char* tile, const unsigned char* from) const {
    const int first_key = chunk_ * kChunkTokens;
    if (first_key >= seen_.begin && first_key + kChunkTokens <= seen_.end) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) ptx::CpAsync16(tile + Offset(i), from + i * kCopyBytes);
      return;
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int key = first_key + (i * kWarpLanes + Lane()) / kRowChunks;
      ptx::CpAsync16Zfill(tile + Offset(i), from + i * kCopyBytes,
                          key >= seen_.begin && key < seen_.end);
    }
  }

  __device__ __forceinline__ int Offset(int copy) const {
    return offsets_[copy % kPeriod] + copy / kPeriod * 8 * kRowBytes;
  }

  const DecodeParams& params_;
  SplitWalk walk_;
  unsigned char* ring_;
  int offsets_[kPeriod];  // offsets in a tile of the chunks that the lane copies
  int32_t chunk_ = 0;
  int32_t end_ = 0;  // no chunk when chunk_ >= end_
  KeyRange seen_ = {0, 0};
  int32_t block_ = 0;
  const int32_t* table_ = nullptr;
  const unsigned char* head_ = nullptr;  // the lane's chunk of the piece's KV head, in block 0
  const unsigned char* keys_ = nullptr;  // the lane's chunk in K of the current chunk of keys
};

}  // namespace tandem::cuda
