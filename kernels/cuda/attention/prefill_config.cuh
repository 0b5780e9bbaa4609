#pragma once

#include "kernels/cuda/attention/tile.cuh"

// The shapes that the portable prefill kernel is compiled for.

namespace tandem::cuda {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = kPrefillWarps * kWarpLanes;
inline constexpr int kPrefillBlocksPerSm = 2;
inline constexpr int kLeastPrefillRows = 64;  // rows of a tile, for any kernel
inline constexpr int kMostPrefillRows = 128;

// The sizes of the kernel for one type and head_dim. MathType is what tensor cores multiply; fp8 is
// widened to f16, which is exact.
template <class MathType, bool kIsFp8, int kHeadDim>
struct PrefillConfig {
  using Type = MathType;
  static constexpr bool kFp8 = kIsFp8;
  static constexpr int kDim = kHeadDim;
  // With head_dim 256 the sums of 32 rows would not fit into a warp's registers.
  static constexpr int kRows = kDim == 256 ? kLeastPrefillRows : kMostPrefillRows;
  static constexpr int kKeys = kDim == 256 ? 32 : 64;
  static constexpr int kWarpRows = kRows / kPrefillWarps;
  static constexpr int kWarpKeys = kKeys / kPrefillWarps;  // it copies them from one pool block
  static constexpr int kMTiles = kWarpRows / 16;
  static constexpr int kNTiles = kKeys / 8;
  static constexpr int kRowBytes = kDim * (kFp8 ? 1 : 2);  // of K or V in the pool
  static constexpr int kPassBytes = kWarpLanes * kChunkBytes;
  static constexpr int kPasses = kWarpKeys * kRowBytes / kPassBytes;  // of a warp over its keys
  // Unrolling loads fragments ahead into registers, which widening fp8 needs, too.
  static constexpr int kScoreUnroll = kFp8 && kDim == 128 ? 4 : kDim / 16;
  static_assert(kPasses * kPassBytes == kWarpKeys * kRowBytes, "the lanes copy unequal numbers");

  // Shared memory for K and V. 16-bit types: a ring of three tiles, one in use and two under way.
  // fp8: two tiles under way as they are in the pool, and one of K and one of V widened.
  static constexpr int kQueryBytes = kRows * kDim * 2;
  static constexpr int kTileBytes = kKeys * kDim * 2;
  static constexpr int kRawBytes = kKeys * kRowBytes;
  static constexpr int kSharedBytes =
      kQueryBytes + (kFp8 ? 2 * kRawBytes + 2 * kTileBytes : 3 * kTileBytes);
};

// Calls `visit` with a value of the configuration for a head_dim.
template <class Math, bool kFp8, class Visit>
auto WithPrefillHeadDim(int head_dim, const Visit& visit) {
  switch (head_dim) {
    case 64:
      return visit(PrefillConfig<Math, kFp8, 64>());
    case 96:
      return visit(PrefillConfig<Math, kFp8, 96>());
    case 128:
      return visit(PrefillConfig<Math, kFp8, 128>());
    default:
      return visit(PrefillConfig<Math, kFp8, 256>());
  }
}

}  // namespace tandem::cuda
