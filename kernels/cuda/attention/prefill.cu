#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/attention/prefill_config.cuh"
#include "kernels/cuda/attention/prefill_tile.cuh"

// Prefill attention as the host sees it: which kernel serves which arguments.

namespace tandem::cuda {
namespace {

template <class Visit>
auto WithConfig(DType dtype, int head_dim, const Visit& visit) {
  switch (dtype) {
    case DType::kBF16:
      return WithPrefillHeadDim<ptx::Bf16, false>(head_dim, visit);
    case DType::kF16:
      return WithPrefillHeadDim<ptx::F16, false>(head_dim, visit);
    default:
      return WithPrefillHeadDim<ptx::F16, true>(head_dim, visit);
  }
}

template <class C>
PrefillTiling TilingOf(const LaunchTarget& on, C) {
  constexpr size_t kReservedBytes = 1 << 10;  // of each block's shared memory, taken by CUDA itself
  const size_t per_block = C::kSharedBytes + sizeof(SpoiledKeys<C::kKeys>) + sizeof(TileView);
  const auto fitting = static_cast<int>(on.shared_bytes_per_sm / (per_block + kReservedBytes));
  return {.tile_rows = C::kRows,
          .tile_keys = C::kKeys,
          .concurrent_tiles = on.num_sms * std::clamp(fitting, 1, kPrefillBlocksPerSm)};
}

PrefillTiling MostTiles(const LaunchTarget& on) {
  return {.concurrent_tiles = kPrefillBlocksPerSm * on.num_sms};
}

// Whether each row of the tensor begins on a multiple of 16 bytes.
bool IsAligned(const TensorView& tensor) {
  const auto places = reinterpret_cast<uint64_t>(tensor.data) |
                      static_cast<uint64_t>(tensor.row_stride * SizeOf(tensor.dtype));
  return places % kChunkBytes == 0;
}

cudaError_t PortablePrefill(const LaunchTarget& on, const AttentionArgs& args,
                            const PrefillWork& work) {
  switch (args.pool.dtype) {
    case DType::kBF16:
      return PrefillBf16(on, args, work);
    case DType::kF16:
      return PrefillF16(on, args, work);
    default:
      return PrefillF8(on, args, work);
  }
}

}  // namespace

bool FitsTensorCores(const LaunchTarget& on, const AttentionArgs& args) {
  const KvPoolView& pool = args.pool;
  const bool typed =
      pool.dtype == DType::kBF16 || pool.dtype == DType::kF16 || pool.dtype == DType::kF8E4M3;
  const int dim = pool.head_dim;
  return on.compute_capability >= 80 && typed && pool.block_tokens >= 16 &&
         (dim == 64 || dim == 96 || dim == 128 || dim == 256) &&
         reinterpret_cast<uint64_t>(pool.data) % kChunkBytes == 0 && IsAligned(args.q);
}

bool TakesTensorCores(const LaunchTarget& on, const AttentionArgs& args) {
  return FitsTensorCores(on, args) && IsAligned(args.out);
}

PrefillTiling TilingOfPrefill(const LaunchTarget& on, const AttentionArgs& args) {
  if (TakesHopperPrefill(on, args)) return HopperTiling(on);
  return WithConfig(args.pool.dtype, args.pool.head_dim,
                    [&](auto config) { return TilingOf(on, config); });
}

size_t PrefillPartialFloats(const LaunchTarget& on, const AttentionArgs& args) {
  return PartialFloats(TilingOfPrefill(on, args).tile_rows, args.pool.head_dim);
}

// PrefillPlanBytes and PrefillScratchBytes suffice for whichever kernel will serve the calls.
size_t PrefillPlanBytes(const LaunchTarget& on, const PrefillShape& shape) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t whole = shape.num_tokens * group / kLeastPrefillRows + shape.num_sequences;
  const int64_t most = whole * shape.num_kv_heads + MaxPrefillPartials(MostTiles(on), shape.splits);
  return static_cast<size_t>(most) * sizeof(PrefillTile);
}

size_t PrefillScratchBytes(const LaunchTarget& on, const PrefillShape& shape) {
  return static_cast<size_t>(MaxPrefillPartials(MostTiles(on), shape.splits)) *
         PartialFloats(kMostPrefillRows, shape.head_dim) * sizeof(float);
}

cudaError_t AttentionPrefill(const LaunchTarget& on, const AttentionArgs& args,
                             const PrefillWork& work) {
  if (work.num_tiles == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  if (TakesHopperPrefill(on, args)) {
    error = HopperPrefill(on, args, work);
  } else {
    error = PortablePrefill(on, args, work);
  }
  if (error != cudaSuccess || work.num_partials == 0) return error;
  return CombinePrefill(on, args, work, TilingOfPrefill(on, args).tile_rows);
}

}  // namespace tandem::cuda
