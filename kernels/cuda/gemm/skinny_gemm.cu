#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// x * weight^T for at most 8 rows of x: all that counts is to stream the weights. Tensor cores take
// 16 weight rows as A and the rows of x as the 8 columns of B: at 8 rows the same products by FMA
// and the widening of the weights would need two thirds of the issue slots that the stream leaves,
// while these need a twentieth. Inputs may be multiplied in any order, so a lane's 16 contiguous
// bytes of a weight row are two fragments of A as they come, and those of a row of x two of B.
// The 8 warps of a block share its weight rows and take their inputs in turn; their sums are added
// in warp order. Both orders depend on k alone, so that a row's result does not depend on the
// others; one that is not there is read as the last one, from where that lies. x comes from the L1
// cache.

namespace tandem::cuda {
namespace {

constexpr int kMaxRows = 8;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

struct GemmParams {
  const void* x;
  const void* weight;  // [n, k], dense
  const float* bias;   // or null
  void* out;
  int64_t x_stride;
  int64_t out_stride;
  int64_t n;
  int64_t k;
  int32_t num_rows;
  GemmOutput output;
  uint32_t first_wave = 0;  // of the blocks: those that may start while the kernel before runs
};

template <class Out>
__device__ __forceinline__ void WriteResult(const GemmParams& p, int row, int64_t column,
                                            float sum) {
  Out* out = static_cast<Out*>(p.out) + row * p.out_stride + column;
  if (p.bias != nullptr) sum += p.bias[column];
  if constexpr (sizeof(Out) == sizeof(float)) {
    if (p.output == GemmOutput::kAccumulate) sum += *out;
  }
  Round(sum, *out);
}

// ---- 16-bit x and weights: tensor cores ----

constexpr int kTileColumns = 16;   // weight rows of a product
constexpr int kStepInputs = 32;    // that the 4 lanes of a row load at once: two products
constexpr int kTurnInputs = 128;   // that a warp takes before the next warp's
constexpr int kLoadsInFlight = 8;  // of weights, per lane
constexpr int kTensorBlocksPerSm = 3;
constexpr int64_t kPrefetchBytes = 64 << 10;

__device__ __forceinline__ void Multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, Bf16) {
  ptx::MmaBf16(sums, a, b0, b1);
}
__device__ __forceinline__ void Multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, F16) {
  ptx::MmaF16(sums, a, b0, b1);
}

// The weights of kSteps steps, on their way.
template <int kTiles, int kSteps>
struct Batch {
  uint4 weights[kSteps][kTiles][2];  // rows g and g + 8 of each tile
};

// Where a lane reads: lane / 4 is the weight row, and the row of x; lane % 4 the place of its 8
// inputs in a step. Rows that are not there are read as the last one is; nothing is made of them.
template <class T, int kTiles>
struct LanePlace {
  const T* weights[kTiles][2];  // of rows g and g + 8 of each tile
  const T* x;
  int offset;    // of the lane's inputs in a step
  int32_t left;  // inputs from the warp's step on to the end of the row

  __device__ __forceinline__ LanePlace(const GemmParams& p, int64_t first_column) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int first = static_cast<int>(threadIdx.x / 32) * kTurnInputs;
    offset = lane % 4 * kChunk;
    left = static_cast<int32_t>(p.k) - first;
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) {
      const int64_t column = min(first_column + lane / 4 + half * 8, p.n - 1);
      weights[half / 2][half % 2] = static_cast<const T*>(p.weight) + column * p.k + first + offset;
    }
    x = static_cast<const T*>(p.x) + min(lane / 4, p.num_rows - 1) * p.x_stride + first + offset;
  }

  __device__ __forceinline__ void Advance(int inputs) {
    left -= inputs;
    x += inputs;
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) weights[half / 2][half % 2] += inputs;
  }
};

// The first weights of a block are asked for while the kernels before still run: no kernel writes
// weights. They wait in the L2 cache; loads into registers the compiler would not leave in front of
// the wait.
template <class T, int kTiles>
__device__ __forceinline__ void PrefetchWeights(const GemmParams& p, int64_t first_column) {
  constexpr int kRowsPerWarp = kTiles * kTileColumns / kWarps;
  constexpr int64_t kRowBytes = kPrefetchBytes / (kTiles * kTileColumns);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = first_column + threadIdx.x / 32 * kRowsPerWarp + lane;
  if (lane >= kRowsPerWarp || column >= p.n) return;
  const auto bytes = min(p.k * static_cast<int64_t>(sizeof(T)), kRowBytes);
  ptx::PrefetchL2(static_cast<const T*>(p.weight) + column * p.k, static_cast<uint32_t>(bytes));
}

// Zeros where a row has ended.
template <class T, int kTiles, int kSteps>
__device__ __forceinline__ void LoadWeights(const LanePlace<T, kTiles>& at,
                                            Batch<kTiles, kSteps>& batch) {
  const auto load = [&](int step, int half) {
    return ptx::LoadStreaming(
        reinterpret_cast<const uint4*>(at.weights[half / 2][half % 2] + step * kStepInputs));
  };
  const bool whole = at.left >= kSteps * kStepInputs;
  if (whole) {
#pragma unroll
    for (int i = 0; i < kSteps * 2 * kTiles; ++i) {
      const int half = i % (2 * kTiles);
      batch.weights[i / (2 * kTiles)][half / 2][half % 2] = load(i / (2 * kTiles), half);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kSteps * 2 * kTiles; ++i) {
    const int step = i / (2 * kTiles);
    const int half = i % (2 * kTiles);
    uint4& to = batch.weights[step][half / 2][half % 2];
    to = make_uint4(0, 0, 0, 0);
    if (step * kStepInputs + at.offset < at.left) to = load(step, half);
  }
}

// Adds the products of a batch; even and odd halves of a step have sums of their own.
template <class T, int kTiles, int kSteps>
__device__ __forceinline__ void AddProducts(const LanePlace<T, kTiles>& at,
                                            const Batch<kTiles, kSteps>& batch,
                                            float (&sums)[kTiles][2][4]) {
  uint4 inputs[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    inputs[step] = make_uint4(0, 0, 0, 0);
    if (step * kStepInputs + at.offset < at.left) {
      inputs[step] = *reinterpret_cast<const uint4*>(at.x + step * kStepInputs);
    }
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 low = batch.weights[step][tile][0];
      const uint4 high = batch.weights[step][tile][1];
      const uint32_t even[4] = {low.x, high.x, low.y, high.y};
      const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
      Multiply(sums[tile][0], even, inputs[step].x, inputs[step].y, T());
      Multiply(sums[tile][1], odd, inputs[step].z, inputs[step].w, T());
    }
  }
}

template <int kTiles>
using BlockSums = float[kWarps][kMaxRows][kTiles * kTileColumns];

template <int kTiles>
__device__ __forceinline__ void ShareSums(const float (&sums)[kTiles][2][4],
                                          BlockSums<kTiles>& shared) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane % 4 * 2 + i % 2;
      const int column = tile * kTileColumns + lane / 4 + i / 2 * 8;
      shared[warp][row][column] = sums[tile][0][i] + sums[tile][1][i];
    }
  }
}

// A block has kTiles * 16 weight rows.
template <class T, class Out, int kTiles>
__global__ void __launch_bounds__(kThreads, kTensorBlocksPerSm) TensorCoreGemm(GemmParams p) {
  constexpr int kSteps = kLoadsInFlight / (2 * kTiles);
  constexpr int kColumns = kTiles * kTileColumns;
  constexpr int kBatches = kTurnInputs / (kSteps * kStepInputs);  // of a turn
  __shared__ BlockSums<kTiles> shared;
  const int64_t first_column = int64_t{blockIdx.x} * kColumns;
  ptx::GridDependencyLaunch();
  // A later one would ask for what it reads at once.
  if (blockIdx.x < p.first_wave) PrefetchWeights<T, kTiles>(p, first_column);
  LanePlace<T, kTiles> at(p, first_column);
  ptx::GridDependencyWait();

  float sums[kTiles][2][4] = {};
  Batch<kTiles, kSteps> batch;
  LoadWeights(at, batch);
  while (at.left > 0) {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      AddProducts(at, batch, sums);
      at.Advance(i + 1 < kBatches ? kSteps * kStepInputs
                                  : kWarps * kTurnInputs - (kBatches - 1) * kSteps * kStepInputs);
      LoadWeights(at, batch);
    }
  }
  ShareSums<kTiles>(sums, shared);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.num_rows * kColumns; i += kThreads) {
    const int row = i / kColumns;
    const int64_t column = first_column + i % kColumns;
    if (column >= p.n) continue;
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[w][row][i % kColumns];
    WriteResult<Out>(p, row, column, sum);
  }
}

// ---- f32 x: FMA ----

// A warp has one weight row, its lanes chunks of 8 inputs.
template <class W>
__global__ void __launch_bounds__(kThreads, 2) FmaGemm(GemmParams p) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (column >= p.n) return;
  const W* weights = static_cast<const W*>(p.weight) + column * p.k;
  const auto* x = static_cast<const float*>(p.x);
  float sums[kMaxRows] = {};
  for (int64_t input = lane * kChunk; input < p.k; input += 32 * kChunk) {
    float w[kChunk];
    LoadVector(weights + input, w);
#pragma unroll
    for (int row = 0; row < kMaxRows; ++row) {
      if (row >= p.num_rows) continue;
      float values[kChunk];
      LoadVector(x + row * p.x_stride + input, values);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sums[row] = __fmaf_rn(w[i], values[i], sums[row]);
    }
  }
#pragma unroll
  for (int row = 0; row < kMaxRows; ++row) {
    for (int distance = 16; distance > 0; distance /= 2) {
      sums[row] += __shfl_xor_sync(0xffffffffu, sums[row], distance);
    }
    if (lane == 0 && row < p.num_rows) WriteResult<float>(p, row, column, sums[row]);
  }
}

// ---- on the host ----

GemmParams ParamsOf(const GemmArgs& args) {
  return {.x = args.x.data,
          .weight = args.weight.data,
          .bias = static_cast<const float*>(args.bias.data),
          .out = args.out.data,
          .x_stride = args.x.row_stride,
          .out_stride = args.out.row_stride,
          .n = args.weight.n,
          .k = args.weight.k,
          .num_rows = static_cast<int32_t>(args.x.rows()),
          .output = args.output};
}

LaunchShape BlockPerColumns(int64_t n, int64_t columns) {
  return {.grid = dim3(static_cast<unsigned>((n + columns - 1) / columns)),
          .block = dim3(kThreads),
          .after_previous = true};
}

// Two tiles halve the reading of x, once that leaves each SM enough blocks.
template <class T, class Out>
cudaError_t LaunchTensorCores(const LaunchTarget& on, GemmParams params) {
  params.first_wave = static_cast<uint32_t>(kTensorBlocksPerSm * on.num_sms);
  constexpr int kBlocksPerSm = 4;
  const bool wide = params.n >= int64_t{kBlocksPerSm} * on.num_sms * 2 * kTileColumns;
  const auto kernel = wide ? TensorCoreGemm<T, Out, 2> : TensorCoreGemm<T, Out, 1>;
  return Launch(kernel, BlockPerColumns(params.n, wide ? 2 * kTileColumns : kTileColumns),
                on.stream, params);
}

}  // namespace

bool TakesSkinnyGemm(const GemmArgs& args) {
  const TensorView weight(args.weight.data, args.weight.format.dtype(),
                          {args.weight.n, args.weight.k});
  return args.x.rows() <= kMaxRows && args.weight.k % kChunk == 0 &&
         AccessOf({args.x, weight}) == Access::kVectors;
}

cudaError_t SkinnyGemm(const LaunchTarget& on, const GemmArgs& args) {
  const GemmParams params = ParamsOf(args);
  return WithActivationType(args.weight.format.dtype(), [&](auto type) {
    using T = decltype(type);
    if (args.x.dtype == DType::kF32) {
      return Launch(FmaGemm<T>, BlockPerColumns(params.n, kWarps), on.stream, params);
    }
    if constexpr (sizeof(T) == sizeof(uint16_t)) {
      return args.out.dtype == DType::kF32 ? LaunchTensorCores<T, float>(on, params)
                                           : LaunchTensorCores<T, T>(on, params);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace tandem::cuda
