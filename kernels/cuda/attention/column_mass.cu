#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention/column_mass_kernel.cuh"
#include "kernels/cuda/attention/prefill_config.cuh"
#include "kernels/cuda/attention/prefill_tile.cuh"
#include "kernels/cuda/launch.cuh"

// The launches of column mass: of the tensor cores' kernel where it takes the shapes, else of a
// plain one.

namespace tandem::cuda {
namespace {

// The plain kernel for any type, head_dim and block size: a thread per key.

__device__ __forceinline__ float Element(const void* from, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(from)[index];
    case DType::kF16:
      return ptx::FromF16(static_cast<const uint16_t*>(from)[index]);
    case DType::kBF16:
      return ptx::FromBf16(static_cast<const uint16_t*>(from)[index]);
    default:
      return ptx::FromE4m3(static_cast<const uint8_t*>(from)[index]);
  }
}

struct PlainShape {
  DType dtype;  // of the pool
  int32_t head_dim;
};

__global__ void __launch_bounds__(kMassThreads)
    PlainColumnMassKernel(MassParams params, PlainShape shape) {
  const PrefillParams& p = params.attention;
  const int key = static_cast<int>(blockIdx.x) * kMassThreads + static_cast<int>(threadIdx.x);
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  if (key >= params.max_tokens) return;
  const TileView view =
      LastRows(params, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  float sum = 0;
  if (key < view.tile.key_end && key >= view.first_seen) {
    const unsigned char* keys = p.kv.Keys(view.BlockOf(p, key), view.tile.kv_head, key);
    for (int packed = view.tile.row_begin; packed < view.tile.row_end; ++packed) {
      const int last = view.LastSeen(p, packed);
      if (key > last || (p.window > 0 && key <= last - p.window)) continue;
      const int64_t query = view.RowIndex(p, packed, shape.head_dim, p.q_stride);
      float score = 0;
      for (int d = 0; d < shape.head_dim; ++d) {
        score = __fmaf_rn(Element(p.q, p.act, query + d), Element(keys, shape.dtype, d), score);
      }
      const float lse = p.lse[view.RowIndex(p, packed, 1, p.lse_stride)];
      const float weight = ptx::Exp2(p.rule.Logit2(score) - lse * kLog2E);
      sum = __fmaf_rn(weight, params.FactorOf(view.tile, packed), sum);
    }
  }
  params.mass[blockIdx.z * params.mass_stride +
              static_cast<int64_t>(blockIdx.y) * params.max_tokens + key] = sum;
}

dim3 GridOf(const MassParams& params, const ColumnMassArgs& args, int keys) {
  return dim3(static_cast<unsigned>((params.max_tokens + keys - 1) / keys),
              static_cast<unsigned>(args.out.shape[1]), static_cast<unsigned>(args.out.shape[0]));
}

template <class Math, bool kFp8>
cudaError_t LaunchColumnMass(const LaunchTarget& on, const ColumnMassArgs& args,
                             const MassParams& params) {
  return WithPrefillHeadDim<Math, kFp8>(args.attention.pool.head_dim, [&](auto config) {
    constexpr int kDim = decltype(config)::kDim;
    const LaunchShape shape = {.grid = GridOf(params, args, kMassKeys),
                               .block = dim3(kMassThreads),
                               .shared_bytes = MassBlock<Math, kFp8, kDim>::kSharedBytes,
                               .after_previous = true};
    return Launch(ColumnMassKernel<Math, kFp8, kDim>, shape, on.stream, params);
  });
}

}  // namespace

cudaError_t ColumnMass(const LaunchTarget& on, const ColumnMassArgs& args) {
  const KvPoolView& pool = args.attention.pool;
  const MassParams params = {.attention = MakePrefillParams(args.attention, {}),
                             .mass = static_cast<float*>(args.out.data),
                             .mass_stride = args.out.row_stride,
                             .max_tokens = static_cast<int32_t>(args.out.shape[2]),
                             .last_rows = args.last_rows,
                             .rows_behind = args.rows_behind,
                             .decay2 = std::log2(args.decay)};
  if (params.max_tokens == 0) return cudaSuccess;
  if (!FitsTensorCores(on, args.attention)) {
    const LaunchShape shape = {.grid = GridOf(params, args, kMassThreads),
                               .block = dim3(kMassThreads),
                               .after_previous = true};
    return Launch(PlainColumnMassKernel, shape, on.stream, params,
                  PlainShape{pool.dtype, pool.head_dim});
  }
  switch (pool.dtype) {
    case DType::kBF16:
      return LaunchColumnMass<ptx::Bf16, false>(on, args, params);
    case DType::kF16:
      return LaunchColumnMass<ptx::F16, false>(on, args, params);
    default:
      return LaunchColumnMass<ptx::F16, true>(on, args, params);
  }
}

}  // namespace tandem::cuda
