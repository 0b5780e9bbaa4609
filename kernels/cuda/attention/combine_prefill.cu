#include <cuda_runtime.h>

#include "kernels/cuda/attention/prefill_tile.cuh"
#include "kernels/cuda/launch.cuh"

// Joins the partial results of tiles whose context was split. A warp takes one row at a time; the
// pieces are added in the order of their positions.

namespace tandem::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRowsPerBlock = 16;
constexpr int kMaxPairs = 256 / 2 / kWarpLanes;  // pairs of a row's elements in one lane, at most

struct CombineShape {
  int32_t tile_rows;
  int32_t head_dim;
};

__device__ __forceinline__ void CombineRow(const PrefillParams& p, const TileView& view,
                                           CombineShape shape, int tile_row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t floats = static_cast<int64_t>(PartialFloats(shape.tile_rows, shape.head_dim));
  const float* first = p.partials + view.tile.partial * floats;
  const int64_t row = int64_t{tile_row} * shape.head_dim;
  const int64_t max_at = int64_t{shape.tile_rows} * shape.head_dim + tile_row;
  float max = -kInfinity;
  for (int i = 0; i < view.tile.num_partials; ++i) max = fmaxf(max, first[i * floats + max_at]);
  const float base = FiniteMax(max);
  float sum = 0;
  float2 values[kMaxPairs] = {};
  for (int i = 0; i < view.tile.num_partials; ++i) {
    const float* partial = first + i * floats;
    const float weight = ptx::Exp2(partial[max_at] - base);
    sum += weight * partial[max_at + shape.tile_rows];
#pragma unroll
    for (int j = 0; j < kMaxPairs; ++j) {
      const int at = 2 * (lane + j * kWarpLanes);
      if (at >= shape.head_dim) continue;
      const float2 pair = *reinterpret_cast<const float2*>(partial + row + at);
      values[j].x = __fmaf_rn(weight, pair.x, values[j].x);
      values[j].y = __fmaf_rn(weight, pair.y, values[j].y);
    }
  }
  const int packed = view.tile.row_begin + tile_row;
  const int64_t out = view.RowIndex(p, packed, shape.head_dim, p.out_stride);
  const float factor = RowFactor(p, sum);
#pragma unroll
  for (int j = 0; j < kMaxPairs; ++j) {
    const int at = 2 * (lane + j * kWarpLanes);
    if (at < shape.head_dim) {
      StorePair(p.out, out + at, p.act, values[j].x * factor, values[j].y * factor);
    }
  }
  if (p.lse != nullptr && lane == 0) {
    p.lse[view.RowIndex(p, packed, 1, p.lse_stride)] = (max + ptx::Log2(sum)) * kLn2;
  }
}

__global__ void __launch_bounds__(kWarps* kWarpLanes)
    CombinePrefillKernel(PrefillParams p, CombineShape shape) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const PrefillTile tile = p.tiles[blockIdx.x];
  if (tile.num_partials == 0) return;
  const TileView view = MakeTileView(p, tile);
  const int num_rows = tile.row_end - tile.row_begin;
  const int begin = static_cast<int>(blockIdx.y) * kRowsPerBlock;
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  for (int row = begin + warp; row < min(begin + kRowsPerBlock, num_rows); row += kWarps) {
    CombineRow(p, view, shape, row);
  }
}

}  // namespace

cudaError_t CombinePrefill(const LaunchTarget& on, const AttentionArgs& args,
                           const PrefillWork& work, int tile_rows) {
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(work.num_tiles),
                                          static_cast<unsigned>(tile_rows / kRowsPerBlock)),
                             .block = dim3(kWarps * kWarpLanes),
                             .after_previous = true};
  return Launch(CombinePrefillKernel, shape, on.stream, MakePrefillParams(args, work),
                CombineShape{tile_rows, args.pool.head_dim});
}

}  // namespace tandem::cuda
