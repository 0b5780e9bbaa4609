#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/kv_store.cuh"
#include "kernels/cuda/memory/move_shape.cuh"
#include "kernels/cuda/numeric.cuh"

// Moves KV of tokens: new ones into their slots of the pool, and others from slot to slot. All
// offsets are 64 bits wide. Bounded by memory.

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

// Loads that a thread has in flight when it copies tokens, half as many as for extents: 64 KiB per
// SM with kCopyBlocksPerSm. Each load has an address of its own, so that 8 do not fit the registers
// that ptxas allows on sm_90.
constexpr int kTokenLoads = kMoveLoads / 2;

// Tokens to copy. A plane is K or V of one head of one layer; sizes are in vectors.
struct TokenParams {
  std::byte* pool;
  const int32_t* from;  // [num_layers, num_kv_heads, count]
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
    const int32_t heads = p.planes_of_layer / 2;
    const int32_t* from = p.from + int64_t{layer * heads + plane % heads} * p.count;
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

}  // namespace tandem::cuda
