#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/kv_store.cuh"
#include "kernels/cuda/numeric.cuh"

// Moves KV in the pool: tokens into their slots and from slot to slot, whole extents within the
// pool and to and from a staging buffer. All offsets are 64 bits wide. Bounded by memory.

namespace tandem::cuda {
namespace {

constexpr int kMaxStoreThreads = 512;

// Stores all heads of one token's K or V, the block's threads spread over them.
template <class T, Access kAccess>
__device__ __forceinline__ void StoreHeads(const T* heads, const KvTarget& to, int64_t slot,
                                           KvPart part) {
  const int chunks = to.head_dim / kChunk;
  for (int chunk = threadIdx.x; chunk < to.num_kv_heads * chunks; chunk += blockDim.x) {
    const int64_t at = int64_t{chunk} * kChunk;
    float x[kChunk];
    LoadChunk<kAccess>(heads, at, at + kChunk, x);
    StoreToSlot<kAccess>(x, to, {slot, part, chunk / chunks, chunk % chunks * kChunk, kChunk});
  }
}

// StoreKv, with one thread block per token.
template <class T, Access kAccess>
__global__ void __launch_bounds__(kMaxStoreThreads)
    StoreTokens(Rows<const T> k, Rows<const T> v, KvTarget to) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int64_t token = blockIdx.x;
  const int64_t slot = to.slots[token];
  if (slot < 0) return;
  StoreHeads<T, kAccess>(k[token], to, slot, KvPart::kKey);
  StoreHeads<T, kAccess>(v[token], to, slot, KvPart::kValue);
}

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

constexpr int kMoveThreads = 256;
constexpr int kMoveWarps = kMoveThreads / 32;
constexpr int kLoadsInFlight = 8;
constexpr int kPieceVectors = 32 * kLoadsInFlight;  // what a warp moves at a time
// Thread blocks of a transfer, which must leave the device to the forward passes beside it: one
// fits beside two of attention's on an SM. Each has 32 KiB in flight, all together 8 MiB, more than
// an H200 needs.
constexpr int64_t kMaxTransferBlocks = 256;
constexpr int64_t kCopyBlocksPerSm = 4;  // of copies that forward passes wait for

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
    uint4 held[kLoadsInFlight];
#pragma unroll
    for (int i = 0; i < kLoadsInFlight; ++i) {
      if (first + i * 32 < vectors) held[i] = ptx::LoadStreaming(from + i * 32);
    }
#pragma unroll
    for (int i = 0; i < kLoadsInFlight; ++i) {
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

// Loads that a thread has in flight when it copies tokens, half as many as for extents: 64 KiB per
// SM with kCopyBlocksPerSm. Each load has an address of its own, so that 8 do not fit the registers
// that ptxas allows on sm_90.
constexpr int kTokenLoads = kLoadsInFlight / 2;

// Tokens to copy. A plane is K or V of one head of one layer; sizes are in vectors.
struct TokenParams {
  std::byte* pool;
  const int32_t* from;  // [num_layers, count]
  const int32_t* to;    // [count]
  int64_t extent_vectors;
  int32_t num_blocks;
  int32_t num_planes;       // of all layers
  int32_t planes_of_layer;  // 2 * num_kv_heads
  int32_t plane_vectors;    // in one extent
  int32_t row_vectors;      // of one token in a plane
  int32_t block_shift;      // log2(block_tokens)
  int32_t count;
};

__device__ __forceinline__ uint4 LoadOnce(const uint4* p) { return ptx::LoadStreaming(p); }
__device__ __forceinline__ uint2 LoadOnce(const uint2* p) { return *p; }
__device__ __forceinline__ void StoreOnce(uint4* p, uint4 v) { ptx::StoreStreaming(p, v); }
__device__ __forceinline__ void StoreOnce(uint2* p, uint2 v) { *p = v; }

// Copies tokens. The threads of a row of the grid stride over the vectors of a plane, neighbours
// over those of one token and then of the next in the lists, which often follow one another in the
// pool as well.
template <class Vector>
__global__ void __launch_bounds__(kMoveThreads) CopyTokenRows(TokenParams p) {
  const int32_t vectors = p.count * p.row_vectors;
  const auto step = static_cast<int32_t>(gridDim.x * kMoveThreads);
  for (auto plane = static_cast<int32_t>(blockIdx.y); plane < p.num_planes;
       plane += static_cast<int32_t>(gridDim.y)) {
    const int32_t layer = plane / p.planes_of_layer;
    const int32_t* from = p.from + int64_t{layer} * p.count;
    Vector* rows = reinterpret_cast<Vector*>(p.pool) +
                   int64_t{layer} * p.num_blocks * p.extent_vectors +
                   plane % p.planes_of_layer * p.plane_vectors;
    const auto vector_of = [&](const int32_t* slots, int32_t at) {
      const int32_t slot = slots[at / p.row_vectors];
      const int32_t offset = slot & ((1 << p.block_shift) - 1);
      return rows + (slot >> p.block_shift) * p.extent_vectors + offset * p.row_vectors +
             at % p.row_vectors;
    };
    for (auto first = static_cast<int32_t>(blockIdx.x * kMoveThreads + threadIdx.x);
         first < vectors; first += kTokenLoads * step) {
      Vector held[kTokenLoads];
#pragma unroll
      for (int i = 0; i < kTokenLoads; ++i) {
        if (first + i * step < vectors) held[i] = LoadOnce(vector_of(from, first + i * step));
      }
#pragma unroll
      for (int i = 0; i < kTokenLoads; ++i) {
        if (first + i * step < vectors) StoreOnce(vector_of(p.to, first + i * step), held[i]);
      }
    }
  }
}

// The rows of a head's tokens are aligned to the vectors that they consist of, since the pool is
// aligned to 16 bytes and all that lies before a row are whole rows.
template <class Vector>
cudaError_t LaunchCopyTokens(const LaunchTarget& on, const KvPoolView& pool, TokenParams params) {
  constexpr int64_t kMaxVectors = int64_t{1} << 30;  // per plane; 32-bit counters step past them
  constexpr int64_t kMaxGridRows = 65535;
  constexpr auto kVectorBytes = static_cast<int64_t>(sizeof(Vector));
  const int64_t row_vectors = pool.head_dim * SizeOf(pool.dtype) / kVectorBytes;
  const int64_t vectors = params.count * row_vectors;
  if (reinterpret_cast<uint64_t>(pool.data) % sizeof(uint4) != 0 || vectors > kMaxVectors) {
    return cudaErrorInvalidValue;
  }
  params.extent_vectors = pool.ExtentBytes() / kVectorBytes;
  params.row_vectors = static_cast<int32_t>(row_vectors);
  params.plane_vectors = static_cast<int32_t>(pool.block_tokens * row_vectors);
  constexpr int64_t kBlockVectors = int64_t{kMoveThreads} * kTokenLoads;
  const int64_t max_blocks = kCopyBlocksPerSm * on.num_sms;
  const int64_t rows = std::min({int64_t{params.num_planes}, max_blocks, kMaxGridRows});
  const int64_t columns = std::min((vectors + kBlockVectors - 1) / kBlockVectors,
                                   std::max(max_blocks / rows, int64_t{1}));
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)),
      .block = dim3(kMoveThreads)};
  return Launch(CopyTokenRows<Vector>, shape, on.stream, params);
}

template <Move kMove>
cudaError_t Transfer(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items) {
  MoveParams params = ParamsOf(args.pool, items, args.items.size());
  params.staging = args.staging.data();
  return LaunchMove<kMove>(on, params, kMaxTransferBlocks);
}

}  // namespace

cudaError_t StoreKv(const LaunchTarget& on, const StoreKvArgs& args) {
  const int chunks = args.pool.num_kv_heads * args.pool.head_dim / kChunk;
  const int threads = std::min((chunks + 31) / 32 * 32, kMaxStoreThreads);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.k.rows())),
                             .block = dim3(static_cast<unsigned>(threads)),
                             .after_previous = true};
  return WithActivationType(args.k.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = StoreAccess(args) == Access::kVectors ? StoreTokens<T, Access::kVectors>
                                                              : StoreTokens<T, Access::kElements>;
    return Launch(kernel, shape, on.stream, RowsOf<const T>(args.k), RowsOf<const T>(args.v),
                  TargetOf(args));
  });
}

cudaError_t CopyBlocks(const LaunchTarget& on, const CopyBlocksArgs& args) {
  static_assert(sizeof(BlockPair) == sizeof(int2));
  const auto* pairs = reinterpret_cast<const int2*>(args.pairs.device());
  const auto num_layers = static_cast<size_t>(args.pool.num_layers);
  return LaunchMove<Move::kCopy>(on, ParamsOf(args.pool, pairs, args.pairs.size() * num_layers),
                                 kCopyBlocksPerSm * on.num_sms);
}

cudaError_t CopyTokens(const LaunchTarget& on, const CopyTokensArgs& args, const int32_t* from,
                       const int32_t* to) {
  const KvPoolView& pool = args.pool;
  TokenParams params = {};
  params.pool = pool.data;
  params.from = from;
  params.to = to;
  params.num_blocks = pool.num_blocks;
  params.planes_of_layer = 2 * pool.num_kv_heads;
  params.num_planes = pool.num_layers * params.planes_of_layer;
  params.block_shift = std::countr_zero(static_cast<uint32_t>(pool.block_tokens));
  params.count = static_cast<int32_t>(args.to.size());
  const bool in_16s = pool.head_dim * SizeOf(pool.dtype) % static_cast<int64_t>(sizeof(uint4)) == 0;
  return in_16s ? LaunchCopyTokens<uint4>(on, pool, params)
                : LaunchCopyTokens<uint2>(on, pool, params);
}

cudaError_t GatherBlocks(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items) {
  return Transfer<Move::kGather>(on, args, items);
}

cudaError_t ScatterBlocks(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items) {
  return Transfer<Move::kScatter>(on, args, items);
}

}  // namespace tandem::cuda
