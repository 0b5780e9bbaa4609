#pragma once

#include <cuda_runtime.h>

// How tiles lie in shared memory, so that ldmatrix reads them without bank conflicts.

namespace tandem::cuda {

inline constexpr int kChunkBytes = 16;  // what cp.async copies, and one row of ldmatrix

// Where 16-byte chunk `chunk` of row `row` lies in a tile of kChunks chunks per row without gaps,
// counted in chunks, so that the 8 rows which ldmatrix reads at a time hit all banks once. Rows of
// 12 chunks (head_dim 96) are a panel of 8 and one of 4: one exclusive-or over the whole row would
// leave it.
template <int kChunks>
__device__ __forceinline__ int SwizzledChunk(int row, int chunk) {
  static_assert(kChunks % 8 == 0 || kChunks == 4 || kChunks == 6 || kChunks == 12);
  int swizzled = chunk ^ (row & 7);
  if constexpr (kChunks == 6) {
    swizzled = chunk ^ ((row >> 2) & 1);
  } else if constexpr (kChunks % 8 == 4) {
    if (chunk >= kChunks - 4) swizzled = chunk ^ ((row >> 1) & 3);
  }
  return row * kChunks + swizzled;
}

// Where in a row of a tile swizzled by SwizzledChunk a lane finds its chunk of each pair (c, c +
// 1), c even, when it reads the same one of all pairs: in bytes, at one or two instructions per
// pair.
template <int kChunks>
class SwizzledPairs {
 public:
  // `odd` 0: the lane reads the first chunk of each pair; 1: the second.
  __device__ __forceinline__ SwizzledPairs(int row, int odd) {
    if constexpr (kChunks == 12) {
      row_ = row * kChunks * kChunkBytes;
      first_ = (odd ^ (row & 7)) * kChunkBytes;
      panel_ = (odd ^ ((row >> 1) & 3)) * kChunkBytes;
    } else {
      first_ = SwizzledChunk<kChunks>(row, odd) * kChunkBytes;
    }
  }

  __device__ __forceinline__ int At(int chunk) const {
    if constexpr (kChunks == 12) {
      constexpr int kPanel = 8;
      return chunk < kPanel
                 ? row_ + (first_ ^ chunk * kChunkBytes)
                 : row_ + kPanel * kChunkBytes + (panel_ ^ (chunk - kPanel) * kChunkBytes);
    } else if constexpr (kChunks == 6) {
      return first_ + chunk * kChunkBytes;
    } else {
      return first_ ^ chunk * kChunkBytes;
    }
  }

 private:
  int row_;
  int first_;
  int panel_;
};

}  // namespace tandem::cuda
