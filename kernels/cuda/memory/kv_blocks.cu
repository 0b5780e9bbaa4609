#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/move_shape.cuh"
#include "kernels/cuda/ptx.cuh"

// Moves whole extents of KV, within the pool and to and from a staging buffer. All offsets are 64
// bits wide. Bounded by memory.

namespace tandem::cuda {
namespace {

enum class Move : uint8_t { kCopy, kGather, kScatter };

// Extents to move. kCopy: items are (from, to), each with all its layers; otherwise (layer, block).
struct MoveParams {
  std::byte* pool;
  std::byte* staging;
  const int2* items;
  int64_t extent_bytes;
  int32_t num_extents;
  int32_t num_pieces;  // of one extent
  int32_t num_layers;
  int32_t num_blocks;
};

constexpr int kMoveWarps = kMoveThreads / 32;
constexpr int kPieceVectors = 32 * kMoveLoads;  // what a warp moves at a time
// Thread blocks of a transfer, which must leave the device to the forward passes beside it: one
// fits beside two of attention's on an SM. Each has 32 KiB in flight, all together 8 MiB, more than
// an H200 needs.
constexpr int64_t kMaxTransferBlocks = 256;

struct Ends {
  const std::byte* from;
  std::byte* to;
};

template <Move kMove>
__device__ __forceinline__ Ends EndsOf(const MoveParams& p, int32_t extent) {
  if constexpr (kMove == Move::kCopy) {
    const int2 pair = p.items[extent / p.num_layers];
    const int64_t layer = int64_t{extent % p.num_layers} * p.num_blocks;
    return {p.pool + (layer + pair.x) * p.extent_bytes, p.pool + (layer + pair.y) * p.extent_bytes};
  } else {
    const int2 item = p.items[extent];
    std::byte* in_pool = p.pool + (int64_t{item.x} * p.num_blocks + item.y) * p.extent_bytes;
    std::byte* staged = p.staging + extent * p.extent_bytes;
    if constexpr (kMove == Move::kGather) return {in_pool, staged};
    return {staged, in_pool};
  }
}

// Moves extents: the warps of the grid stride over the pieces, none waiting for another. Counts of
// pieces of 4 KiB fit 32 bits, and division by them is then quick.
template <Move kMove>
__global__ void __launch_bounds__(kMoveThreads) MoveExtents(MoveParams p) {
  const auto vectors = static_cast<int32_t>(p.extent_bytes / static_cast<int64_t>(sizeof(uint4)));
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto first_piece = static_cast<int32_t>(blockIdx.x * kMoveWarps + threadIdx.x / 32);
  const auto step = static_cast<int32_t>(gridDim.x * kMoveWarps);
  for (int32_t piece = first_piece; piece < p.num_extents * p.num_pieces; piece += step) {
    const int32_t first = piece % p.num_pieces * kPieceVectors + lane;
    const Ends ends = EndsOf<kMove>(p, piece / p.num_pieces);
    const auto* from = reinterpret_cast<const uint4*>(ends.from) + first;
    auto* to = reinterpret_cast<uint4*>(ends.to) + first;
    uint4 held[kMoveLoads];
#pragma unroll
    for (int i = 0; i < kMoveLoads; ++i) {
      if (first + i * 32 < vectors) held[i] = ptx::LoadStreaming(from + i * 32);
    }
#pragma unroll
    for (int i = 0; i < kMoveLoads; ++i) {
      if (first + i * 32 < vectors) ptx::StoreStreaming(to + i * 32, held[i]);
    }
  }
}

// Launches a move in vectors of 16 bytes, to which the pool and the staging must be aligned.
template <Move kMove>
cudaError_t LaunchMove(const LaunchTarget& on, const MoveParams& params, int64_t max_blocks) {
  const uint64_t places =
      reinterpret_cast<uint64_t>(params.pool) | reinterpret_cast<uint64_t>(params.staging);
  if (places % sizeof(uint4) != 0) return cudaErrorInvalidValue;
  const int64_t pieces = int64_t{params.num_extents} * params.num_pieces;
  const int64_t blocks = std::min((pieces + kMoveWarps - 1) / kMoveWarps, max_blocks);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)),
                             .block = dim3(kMoveThreads)};
  return Launch(MoveExtents<kMove>, shape, on.stream, params);
}

// The bytes of an extent are a multiple of 128, since it has K and V of at least 8 tokens of 8
// elements.
MoveParams ParamsOf(const KvPoolView& pool, const int2* items, size_t num_extents) {
  constexpr int64_t kPieceBytes = kPieceVectors * static_cast<int64_t>(sizeof(uint4));
  return {.pool = pool.data,
          .staging = nullptr,
          .items = items,
          .extent_bytes = pool.ExtentBytes(),
          .num_extents = static_cast<int32_t>(num_extents),
          .num_pieces = static_cast<int32_t>((pool.ExtentBytes() + kPieceBytes - 1) / kPieceBytes),
          .num_layers = pool.num_layers,
          .num_blocks = pool.num_blocks};
}

template <Move kMove>
cudaError_t Transfer(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items) {
  MoveParams params = ParamsOf(args.pool, items, args.items.size());
  params.staging = args.staging.data();
  return LaunchMove<kMove>(on, params, kMaxTransferBlocks);
}

}  // namespace

cudaError_t CopyBlocks(const LaunchTarget& on, const CopyBlocksArgs& args) {
  static_assert(sizeof(BlockPair) == sizeof(int2));
  const auto* pairs = reinterpret_cast<const int2*>(args.pairs.device());
  const auto num_layers = static_cast<size_t>(args.pool.num_layers);
  return LaunchMove<Move::kCopy>(on, ParamsOf(args.pool, pairs, args.pairs.size() * num_layers),
                                 kCopyBlocksPerSm * on.num_sms);
}

cudaError_t GatherBlocks(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items) {
  return Transfer<Move::kGather>(on, args, items);
}

cudaError_t ScatterBlocks(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items) {
  return Transfer<Move::kScatter>(on, args, items);
}

}  // namespace tandem::cuda
