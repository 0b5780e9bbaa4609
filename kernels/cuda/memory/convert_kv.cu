#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// Converts KV of another layout into the pool. In each plane (K or V of one head) the tokens of a
// run lie side by side in both layouts, so that warps read and write whole lines. Bounded by
// memory.

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLoadsInFlight = 4;
constexpr int kPieceChunks = 32 * kLoadsInFlight;  // chunks that a warp moves at a time
// Few thread blocks, because a transfer must leave the device to the forward passes beside it.
constexpr int64_t kMaxBlocks = 128;

// kChunk elements as they are stored, moved at once.
template <class T>
struct alignas(sizeof(T) == 1 ? 8 : 16) Packed {
  uint32_t words[kChunk * sizeof(T) / sizeof(uint32_t)];
};

struct Run {
  const std::byte* src;  // the run's tokens in the first plane
  std::byte* dst;
  int32_t num_chunks;  // per plane
};

// The runs of one launch, which are the kernel's parameter. Just under the 4 KiB that parameters
// may have.
struct RunBatch {
  static constexpr int kMaxRuns = 168;

  Run runs[kMaxRuns];
  int64_t src_plane_bytes;
  int64_t dst_plane_bytes;
  int32_t num_planes;
  int32_t num_runs;
  int32_t num_pieces;  // of the longest run's plane
};
static_assert(sizeof(RunBatch) <= 4096, "what a launch may have");

template <class Half>
__device__ __forceinline__ void Unpack(const Packed<Half>& packed, float (&x)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const float2 pair = UnpackPair(packed.words[i], Half());
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ void Unpack(const Packed<F8E4m3>& packed, float (&x)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const auto pair = static_cast<uint16_t>(packed.words[i / 2] >> (16 * (i % 2)));
    const float2 values = ptx::UnpackF16(ptx::E4m3x2ToF16x2(pair));
    x[2 * i] = values.x;
    x[2 * i + 1] = values.y;
  }
}

// Stores a chunk as elements of To. Each value is one that To has: nothing is rounded.
template <class From, class To>
__device__ __forceinline__ void StoreAs(const Packed<From>& packed, std::byte* to) {
  if constexpr (std::is_same_v<From, To>) {
    *reinterpret_cast<Packed<To>*>(to) = packed;
  } else {
    float x[kChunk];
    Unpack(packed, x);
    StoreVector(x, reinterpret_cast<To*>(to));
  }
}

// Converts a batch of runs: the warps of the grid stride over the pieces, none waiting for another.
template <class From, class To>
__global__ void __launch_bounds__(kThreads) ConvertRuns(RunBatch batch) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t pieces = batch.num_runs * batch.num_planes * batch.num_pieces;
  const auto step = static_cast<int32_t>(gridDim.x * kWarps);
  for (auto i = static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / 32); i < pieces;
       i += step) {
    const int32_t plane = i / batch.num_pieces % batch.num_planes;
    const Run& run = batch.runs[i / batch.num_pieces / batch.num_planes];
    const int32_t first = i % batch.num_pieces * kPieceChunks + lane;
    const std::byte* src = run.src + plane * batch.src_plane_bytes;
    std::byte* dst = run.dst + plane * batch.dst_plane_bytes;
    Packed<From> held[kLoadsInFlight];
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) {
      const int32_t chunk = first + j * 32;
      if (chunk < run.num_chunks) held[j] = reinterpret_cast<const Packed<From>*>(src)[chunk];
    }
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) {
      const int32_t chunk = first + j * 32;
      if (chunk < run.num_chunks) {
        StoreAs<From, To>(held[j], dst + chunk * kChunk * static_cast<int64_t>(sizeof(To)));
      }
    }
  }
}

using Kernel = void (*)(RunBatch);

template <class To>
Kernel KernelFor(DType from) {
  switch (from) {
    case DType::kF8E4M3:
      return ConvertRuns<F8E4m3, To>;
    case DType::kF16:
      if constexpr (std::is_same_v<To, float>) return ConvertRuns<F16, To>;
      return nullptr;
    case DType::kBF16:
      if constexpr (std::is_same_v<To, float>) return ConvertRuns<Bf16, To>;
      return nullptr;
    default:
      return nullptr;
  }
}

// The kernel for a pair of types; for equal types only their size counts. Null where values would
// change.
Kernel KernelFor(DType from, DType to) {
  switch (to) {
    case DType::kF8E4M3:
      return from == to ? ConvertRuns<F8E4m3, F8E4m3> : nullptr;
    case DType::kF16:
      return from == to ? ConvertRuns<F16, F16> : KernelFor<F16>(from);
    case DType::kBF16:
      return from == to ? ConvertRuns<F16, F16> : KernelFor<Bf16>(from);
    case DType::kF32:
      return from == to ? ConvertRuns<float, float> : KernelFor<float>(from);
    default:
      return nullptr;
  }
}

Run RunOf(const ConvertKvArgs& args, const KvRun& run) {
  const int64_t head_dim = args.pool.head_dim;
  return {.src = run.src.data() + run.src_token * head_dim * SizeOf(args.src_dtype),
          .dst = args.pool.Extent(run.dst.layer, run.dst.block) +
                 run.dst_token * head_dim * SizeOf(args.pool.dtype),
          .num_chunks = static_cast<int32_t>(run.num_tokens * head_dim / kChunk)};
}

cudaError_t LaunchBatch(const LaunchTarget& on, Kernel kernel, RunBatch& batch) {
  int32_t longest = 0;
  for (int32_t i = 0; i < batch.num_runs; ++i) {
    longest = std::max(longest, batch.runs[i].num_chunks);
  }
  batch.num_pieces = (longest + kPieceChunks - 1) / kPieceChunks;
  const int64_t pieces = int64_t{batch.num_runs} * batch.num_planes * batch.num_pieces;
  const int64_t blocks = std::min((pieces + kWarps - 1) / kWarps, kMaxBlocks);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
  return Launch(kernel, shape, on.stream, batch);
}

}  // namespace

cudaError_t ConvertKv(const LaunchTarget& on, const ConvertKvArgs& args) {
  const KvPoolView& pool = args.pool;
  const Kernel kernel = KernelFor(args.src_dtype, pool.dtype);
  // The kernel moves vectors of 16 bytes: the pool must be aligned to them, as the sources are.
  if (kernel == nullptr || reinterpret_cast<uint64_t>(pool.data) % sizeof(uint4) != 0) {
    return cudaErrorInvalidValue;
  }
  RunBatch batch = {};
  batch.num_planes = 2 * pool.num_kv_heads;
  batch.src_plane_bytes = args.AsSource().ExtentBytes() / batch.num_planes;
  batch.dst_plane_bytes = pool.ExtentBytes() / batch.num_planes;
  for (size_t first = 0; first < args.runs.size(); first += RunBatch::kMaxRuns) {
    const auto runs =
        args.runs.subspan(first, std::min<size_t>(args.runs.size() - first, RunBatch::kMaxRuns));
    std::transform(runs.begin(), runs.end(), batch.runs,
                   [&args](const KvRun& run) { return RunOf(args, run); });
    batch.num_runs = static_cast<int32_t>(runs.size());
    const cudaError_t error = LaunchBatch(on, kernel, batch);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tandem::cuda
