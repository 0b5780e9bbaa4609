#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// Elementwise kernels and the RMS norm of rows. A thread block handles one row, or a piece of it,
// and each thread chunks of 8 elements. All are bound by memory bandwidth: each load has 16 to 32
// bytes. The sum over a row runs in an order that depends on its length alone.

namespace tandem::cuda {
namespace {

constexpr int kPieceThreads = 256;
constexpr int kPieceElements = kPieceThreads * kChunk;
constexpr float kLog2OfE = 1.4426950408889634f;

// A launch with one thread block per row (grid x) and per piece of the row (grid y).
LaunchShape PiecesOfRows(int64_t rows, int64_t n) {
  const auto pieces =
      static_cast<unsigned>(std::max<int64_t>((n + kPieceElements - 1) / kPieceElements, 1));
  return {.grid = dim3(static_cast<unsigned>(rows), pieces),
          .block = dim3(kPieceThreads),
          .after_previous = true};
}

__device__ __forceinline__ int64_t FirstElement() {
  return int64_t{blockIdx.y} * kPieceElements + threadIdx.x * kChunk;
}

__device__ __forceinline__ void FollowPrevious() {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
}

template <class T, Access kAccess>
__global__ void EmbeddingRows(const int32_t* token_ids, Rows<const T> table, Rows<float> out,
                              int64_t n) {
  FollowPrevious();
  const int64_t at = FirstElement();
  if (at >= n) return;
  float x[kChunk];
  LoadChunk<kAccess>(table[token_ids[blockIdx.x]], at, n, x);
  StoreChunk<kAccess>(x, out[blockIdx.x], at, n);
}

template <class T, Access kAccess>
__global__ void SiluMulRows(Rows<const T> gate_up, Rows<T> out, int64_t n) {
  FollowPrevious();
  const int64_t at = FirstElement();
  if (at >= n) return;
  const T* gates = gate_up[blockIdx.x];
  float gate[kChunk];
  float up[kChunk];
  LoadChunk<kAccess>(gates, at, n, gate);
  LoadChunk<kAccess>(gates + n, at, n, up);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    up[i] *= gate[i] * ptx::Rcp(1.0f + ptx::Exp2(-kLog2OfE * gate[i]));
  }
  StoreChunk<kAccess>(up, out[blockIdx.x], at, n);
}

template <class T, Access kAccess>
__global__ void AddBiasRows(Rows<T> out, const float* bias, int64_t n) {
  FollowPrevious();
  const int64_t at = FirstElement();
  if (at >= n) return;
  float x[kChunk];
  float added[kChunk];
  LoadChunk<kAccess>(out[blockIdx.x], at, n, x);
  LoadChunk<kAccess>(bias, at, n, added);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) x[i] += added[i];
  StoreChunk<kAccess>(x, out[blockIdx.x], at, n);
}

template <class From, class To, Access kAccess>
__global__ void ConvertRows(Rows<const From> x, Rows<To> out, int64_t n) {
  FollowPrevious();
  const int64_t at = FirstElement();
  if (at >= n) return;
  float values[kChunk];
  LoadChunk<kAccess>(x[blockIdx.x], at, n, values);
  StoreChunk<kAccess>(values, out[blockIdx.x], at, n);
}

constexpr int kMaxNormThreads = 512;

// The sum of x over the threads of the block, with the same bits in every thread.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float of_warp[kMaxNormThreads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warp[warp];
  return sum;
}

// The RMS norm of rows. The row is read a second time to be scaled, then from the L1 cache. A
// thread writes only elements that it alone has read, so that x may be out. No kernel writes the
// norm's weights, so they are fetched while the previous kernel runs.
template <class T, Access kAccess>
__global__ void __launch_bounds__(kMaxNormThreads)
    RmsNormRows(Rows<const float> x, const float* weight, Rows<T> out, int64_t n, float eps) {
  if (kAccess == Access::kVectors && blockIdx.x == 0 && threadIdx.x == 0) {
    ptx::PrefetchL2(weight, static_cast<uint32_t>(n * sizeof(float)));
  }
  FollowPrevious();
  const float* row = x[blockIdx.x];
  const int64_t first = threadIdx.x * kChunk;
  const int64_t step = blockDim.x * kChunk;
  float squares = 0;
  for (int64_t at = first; at < n; at += step) {
    float values[kChunk];
    LoadChunk<kAccess>(row, at, n, values);
#pragma unroll
    for (float value : values) squares = __fmaf_rn(value, value, squares);
  }
  const float scale = 1.0f / sqrtf(BlockSum(squares) / static_cast<float>(n) + eps);
  for (int64_t at = first; at < n; at += step) {
    float values[kChunk];
    float weights[kChunk];
    LoadChunk<kAccess>(row, at, n, values);
    LoadChunk<kAccess>(weight, at, n, weights);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] *= scale * weights[i];
    StoreChunk<kAccess>(values, out[blockIdx.x], at, n);
  }
}

// The view of `up`, which is the second half of each row of gate_up.
TensorView UpOf(const SiluMulArgs& args) {
  TensorView up = args.gate_up;
  up.data = static_cast<std::byte*>(up.data) + args.out.shape[1] * SizeOf(up.dtype);
  return up;
}

}  // namespace

cudaError_t Embedding(const LaunchTarget& on, const EmbeddingArgs& args) {
  const int64_t n = args.table.k;
  const TensorView table(args.table.data, args.table.format.dtype(), {args.table.n, n});
  const bool vectors = AccessOfRows(n, {table, args.out}) == Access::kVectors;
  return WithActivationType(table.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel =
        vectors ? EmbeddingRows<T, Access::kVectors> : EmbeddingRows<T, Access::kElements>;
    return Launch(kernel, PiecesOfRows(args.out.rows(), n), on.stream, args.token_ids.device(),
                  RowsOf<const T>(table), RowsOf<float>(args.out), n);
  });
}

cudaError_t RmsNorm(const LaunchTarget& on, const RmsNormArgs& args) {
  const int64_t n = args.x.shape[1];
  const int64_t warps = (n + 32 * kChunk - 1) / (32 * kChunk);
  const auto threads =
      static_cast<unsigned>(std::min<int64_t>(std::max<int64_t>(warps, 1) * 32, kMaxNormThreads));
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.x.rows())),
                             .block = dim3(threads),
                             .after_previous = true};
  const bool vectors = AccessOfRows(n, {args.x, args.weight, args.out}) == Access::kVectors;
  return WithActivationType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel =
        vectors ? RmsNormRows<T, Access::kVectors> : RmsNormRows<T, Access::kElements>;
    return Launch(kernel, shape, on.stream, RowsOf<const float>(args.x),
                  static_cast<const float*>(args.weight.data), RowsOf<T>(args.out), n, args.eps);
  });
}

cudaError_t SiluMul(const LaunchTarget& on, const SiluMulArgs& args) {
  const int64_t n = args.out.shape[1];
  const bool vectors = AccessOfRows(n, {args.gate_up, UpOf(args), args.out}) == Access::kVectors;
  return WithActivationType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel =
        vectors ? SiluMulRows<T, Access::kVectors> : SiluMulRows<T, Access::kElements>;
    return Launch(kernel, PiecesOfRows(args.out.rows(), n), on.stream,
                  RowsOf<const T>(args.gate_up), RowsOf<T>(args.out), n);
  });
}

cudaError_t AddBias(const LaunchTarget& on, const TensorView& out, const TensorView& bias) {
  const int64_t n = out.shape[1];
  const bool vectors = AccessOfRows(n, {out, bias}) == Access::kVectors;
  return WithActivationType(out.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel =
        vectors ? AddBiasRows<T, Access::kVectors> : AddBiasRows<T, Access::kElements>;
    return Launch(kernel, PiecesOfRows(out.rows(), n), on.stream, RowsOf<T>(out),
                  static_cast<const float*>(bias.data), n);
  });
}

cudaError_t Convert(const LaunchTarget& on, const TensorView& x, const TensorView& out) {
  const int64_t n = x.shape[1];
  const bool vectors = AccessOfRows(n, {x, out}) == Access::kVectors;
  return WithActivationType(x.dtype, [&](auto from_type) {
    using From = decltype(from_type);
    return WithActivationType(out.dtype, [&](auto to_type) {
      using To = decltype(to_type);
      const auto kernel = vectors ? ConvertRows<From, To, Access::kVectors>
                                  : ConvertRows<From, To, Access::kElements>;
      return Launch(kernel, PiecesOfRows(x.rows(), n), on.stream, RowsOf<const From>(x),
                    RowsOf<To>(out), n);
    });
  });
}

}  // namespace tandem::cuda
