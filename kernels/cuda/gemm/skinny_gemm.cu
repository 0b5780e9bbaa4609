#include <algorithm>
#include <cstdint>

#include "kernels/cuda/gemm/coded_weight.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// x * weight^T for at most 8 rows of x: all that counts is to stream the weights. Tensor cores take
// 16 weight rows as A and the rows of x as the 8 columns of B: at 8 rows the same products by FMA
// and the widening of the weights would need two thirds of the issue slots that the stream leaves,
// while these need a twentieth. Inputs may be multiplied in any order, so a lane's 16 contiguous
// bytes of a weight row are two fragments of A as they come, and those of a row of x two of B. The
// 8 warps of a block share its weight rows and take their inputs in turn; their sums are added in
// warp order. Both orders depend on k alone, so that a row's result does not depend on the other
// rows; past the last row the last one is read again. x comes from the L1 cache. Codes
// (coded_weight.h) become 16-bit floats in registers, exactly. The products of a group are summed
// from zero, and that sum is added times the scale, in f32: a weight is never rounded.

namespace tandem::cuda {
namespace {

constexpr int kMaxRows = 8;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

struct GemmParams {
  const void* x;
  const std::byte* weight;  // [n, k], dense; or the codes
  const uint16_t* scales;   // of a quantised weight; else null
  const float* bias;        // or null
  void* out;
  int64_t x_stride;
  int64_t out_stride;
  int64_t n;
  int64_t k;
  int64_t weight_row_bytes;
  int32_t num_rows;
  GemmOutput output;
  uint32_t first_wave = 0;  // thread blocks that may start while the kernel before runs
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

// ---- x of 16 bits, weights of the same type or codes: tensor cores ----

constexpr int kTileColumns = 16;  // weight rows of a tensor core product
constexpr int kLaneBytes = 16;    // of a weight row that a lane reads in one load
constexpr int kStepBytes = 64;    // of a weight row that its 4 lanes read in one load
constexpr int kTurnSteps = 4;     // steps along k that a warp takes before the next warp's begin
constexpr int kTurnBytes = kTurnSteps * kStepBytes;
constexpr int kLoadsInFlight = 8;  // loads of weights per lane
constexpr int kGroupInputs = 32;   // of which a lane has 8, enough for two products
constexpr int64_t kPrefetchBytes = 64 << 10;

// Constants by the type W of the weights. A step is one group of floats, or two groups of codes.
template <class W>
constexpr bool kIsCode = sizeof(W) == 1;
template <class W>
constexpr int kStepInputs = kStepBytes / static_cast<int>(sizeof(W));
template <class W>
constexpr int kTurnInputs = kTurnBytes / static_cast<int>(sizeof(W));
// Codes take more registers, so fewer blocks fit; two have 64 KiB of loads under way.
template <class W>
constexpr int kBlocksPerSm = kIsCode<W> ? 2 : 3;

__device__ __forceinline__ void Multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, Bf16) {
  ptx::MmaBf16(sums, a, b0, b1);
}
__device__ __forceinline__ void Multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, F16) {
  ptx::MmaF16(sums, a, b0, b1);
}

// The weights of kSteps steps along k, while they are loaded.
template <class W, int kTiles, int kSteps>
struct Batch {
  uint4 weights[kSteps][kTiles][2];  // rows g and g + 8 of each tile
  // The scales of the two groups in a step of codes, that of the first in the low half.
  uint32_t scales[kIsCode<W> ? kSteps : 1][kTiles][2];
};

// Where a lane reads: lane / 4 is the weight row, and the row of x; lane % 4 the place of its 8
// inputs in a group. Past the last row the last one is read again, and its result not used.
template <class T, class W, int kTiles>
struct LanePlace {
  const std::byte* weights[kTiles][2];  // of rows g and g + 8 of each tile
  const uint16_t* scales[kTiles][2];    // of the same rows, for codes
  const T* x;
  int offset;    // of the lane's inputs in a group
  int32_t left;  // inputs from the warp's current step to the end of the row

  __device__ __forceinline__ LanePlace(const GemmParams& p, int64_t first_column) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int first = static_cast<int>(threadIdx.x / 32) * kTurnInputs<W>;
    offset = lane % 4 * kChunk;
    left = static_cast<int32_t>(p.k) - first;
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) {
      const int64_t column = min(first_column + lane / 4 + half * 8, p.n - 1);
      weights[half / 2][half % 2] = p.weight + column * p.weight_row_bytes +
                                    first * static_cast<int>(sizeof(W)) + lane % 4 * kLaneBytes;
      if constexpr (kIsCode<W>) {
        scales[half / 2][half % 2] =
            p.scales + (column * p.weight_row_bytes + first) / kGroupInputs;
      }
    }
    x = static_cast<const T*>(p.x) + min(lane / 4, p.num_rows - 1) * p.x_stride + first + offset;
  }

  __device__ __forceinline__ void Advance(int inputs) {
    left -= inputs;
    x += inputs;
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) {
      weights[half / 2][half % 2] += inputs * static_cast<int>(sizeof(W));
      if constexpr (kIsCode<W>) scales[half / 2][half % 2] += inputs / kGroupInputs;
    }
  }
};

// The first weights of a block are brought into the L2 cache while the kernels before still run,
// since no kernel writes weights. Loads into registers would not do: the compiler would move them
// behind the wait for those kernels.
template <int kTiles>
__device__ __forceinline__ void PrefetchWeights(const GemmParams& p, int64_t first_column) {
  constexpr int kRowsPerWarp = kTiles * kTileColumns / kWarps;
  constexpr int64_t kRowBytes = kPrefetchBytes / (kTiles * kTileColumns);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = first_column + threadIdx.x / 32 * kRowsPerWarp + lane;
  if (lane >= kRowsPerWarp || column >= p.n) return;
  const auto bytes = min(p.weight_row_bytes, kRowBytes);
  ptx::PrefetchL2(p.weight + column * p.weight_row_bytes, static_cast<uint32_t>(bytes));
}

// Loads the weights of a batch, zeros past the end of a row. A row of codes ends with its unit,
// which is one step.
template <class T, class W, int kTiles, int kSteps>
__device__ __forceinline__ void LoadWeights(const LanePlace<T, W, kTiles>& at,
                                            Batch<W, kTiles, kSteps>& batch) {
  const auto load = [&](int step, int half) {
    return ptx::LoadStreaming(
        reinterpret_cast<const uint4*>(at.weights[half / 2][half % 2] + step * kStepBytes));
  };
  const bool whole = at.left >= kSteps * kStepInputs<W>;
  if (whole) {
#pragma unroll
    for (int i = 0; i < kSteps * 2 * kTiles; ++i) {
      const int half = i % (2 * kTiles);
      batch.weights[i / (2 * kTiles)][half / 2][half % 2] = load(i / (2 * kTiles), half);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kSteps * 2 * kTiles; ++i) {
      const int step = i / (2 * kTiles);
      const int half = i % (2 * kTiles);
      uint4& to = batch.weights[step][half / 2][half % 2];
      to = make_uint4(0, 0, 0, 0);
      const int begin = step * kStepInputs<W> + (kIsCode<W> ? 0 : at.offset);
      if (begin < at.left) to = load(step, half);
    }
  }
  if constexpr (kIsCode<W>) {
#pragma unroll
    for (int i = 0; i < kSteps * 2 * kTiles; ++i) {
      const int step = i / (2 * kTiles);
      const int half = i % (2 * kTiles);
      uint32_t& to = batch.scales[step][half / 2][half % 2];
      to = 0;
      if (step * kStepInputs<W> < at.left) {
        to = reinterpret_cast<const uint32_t*>(at.scales[half / 2][half % 2])[step];
      }
    }
  }
}

template <class T, class W, int kTiles>
__device__ __forceinline__ uint4 LoadInputs(const LanePlace<T, W, kTiles>& at, int group) {
  const int begin = group * kGroupInputs;
  if (begin + at.offset >= at.left) return make_uint4(0, 0, 0, 0);
  return *reinterpret_cast<const uint4*>(at.x + begin);
}

// Adds the products of a batch of floats; even and odd halves of a step have separate sums.
template <class T, int kTiles, int kSteps>
__device__ __forceinline__ void AddProducts(const LanePlace<T, T, kTiles>& at,
                                            const Batch<T, kTiles, kSteps>& batch,
                                            float (&sums)[kTiles][2][4]) {
  uint4 inputs[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) inputs[step] = LoadInputs(at, step);
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

// Adds the products of one group of codes, 8 in each lane, times the scales of weight rows g and g
// + 8.
template <class T, class Code>
__device__ __forceinline__ void AddGroup(uint2 low, uint2 high, uint4 inputs, float low_scale,
                                         float high_scale, float (&sums)[4]) {
  float products[4] = {};
  uint2 a = WidenCodes<T>(low.x, Code());
  uint2 b = WidenCodes<T>(high.x, Code());
  const uint32_t first[4] = {a.x, b.x, a.y, b.y};
  Multiply(products, first, inputs.x, inputs.y, T());
  a = WidenCodes<T>(low.y, Code());
  b = WidenCodes<T>(high.y, Code());
  const uint32_t second[4] = {a.x, b.x, a.y, b.y};
  Multiply(products, second, inputs.z, inputs.w, T());
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = __fmaf_rn(i < 2 ? low_scale : high_scale, products[i], sums[i]);
  }
}

// Adds the products of a batch of codes; the two groups of a step have separate sums.
template <class T, class Code, int kTiles, int kSteps>
__device__ __forceinline__ void AddProducts(const LanePlace<T, Code, kTiles>& at,
                                            const Batch<Code, kTiles, kSteps>& batch,
                                            float (&sums)[kTiles][2][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint4 first = LoadInputs(at, 2 * step);
    const uint4 second = LoadInputs(at, 2 * step + 1);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 low = batch.weights[step][tile][0];
      const uint4 high = batch.weights[step][tile][1];
      const float2 low_scales = ptx::UnpackBf16(batch.scales[step][tile][0]);
      const float2 high_scales = ptx::UnpackBf16(batch.scales[step][tile][1]);
      AddGroup<T, Code>(make_uint2(low.x, low.y), make_uint2(high.x, high.y), first, low_scales.x,
                        high_scales.x, sums[tile][0]);
      AddGroup<T, Code>(make_uint2(low.z, low.w), make_uint2(high.z, high.w), second, low_scales.y,
                        high_scales.y, sums[tile][1]);
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

// x * weight^T by tensor cores. A thread block has kTiles * 16 weight rows.
template <class T, class W, class Out, int kTiles>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<W>) TensorCoreGemm(GemmParams p) {
  constexpr int kSteps = kLoadsInFlight / (2 * kTiles);
  constexpr int kColumns = kTiles * kTileColumns;
  constexpr int kBatches = kTurnSteps / kSteps;  // of a turn
  constexpr int kBatchInputs = kSteps * kStepInputs<W>;
  __shared__ BlockSums<kTiles> shared;
  const int64_t first_column = int64_t{blockIdx.x} * kColumns;
  ptx::GridDependencyLaunch();
  // Only the first wave prefetches: a later block would ask for what it reads at once.
  if (blockIdx.x < p.first_wave) PrefetchWeights<kTiles>(p, first_column);
  LanePlace<T, W, kTiles> at(p, first_column);
  ptx::GridDependencyWait();

  float sums[kTiles][2][4] = {};
  Batch<W, kTiles, kSteps> batch;
  LoadWeights(at, batch);
  while (at.left > 0) {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      AddProducts(at, batch, sums);
      at.Advance(i + 1 < kBatches ? kBatchInputs
                                  : kWarps * kTurnInputs<W> - (kBatches - 1) * kBatchInputs);
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

// Inputs [at, at + 8) of a weight row as f32.
template <class W>
__device__ __forceinline__ void LoadWeightChunk(const GemmParams& p, int64_t column, int64_t at,
                                                float (&w)[kChunk]) {
  if constexpr (kIsCode<W>) {
    const CodedWeight weight = {reinterpret_cast<const uint8_t*>(p.weight), p.scales,
                                p.weight_row_bytes};
    LoadCodes<W>(weight, column, at, w);
  } else {
    LoadVector(reinterpret_cast<const W*>(p.weight + column * p.weight_row_bytes) + at, w);
  }
}

// x * weight^T by FMA. A warp has one weight row, its lanes chunks of 8 inputs.
template <class W>
__global__ void __launch_bounds__(kThreads, 2) FmaGemm(GemmParams p) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (column >= p.n) return;
  const auto* x = static_cast<const float*>(p.x);
  float sums[kMaxRows] = {};
  for (int64_t input = lane * kChunk; input < p.k; input += 32 * kChunk) {
    float w[kChunk];
    LoadWeightChunk<W>(p, column, input, w);
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
  const bool has_codes = args.weight.format.has_codes();
  return {.x = args.x.data,
          .weight = args.weight.data,
          .scales = has_codes ? CodedWeightOf(args.weight).scales : nullptr,
          .bias = static_cast<const float*>(args.bias.data),
          .out = args.out.data,
          .x_stride = args.x.row_stride,
          .out_stride = args.out.row_stride,
          .n = args.weight.n,
          .k = args.weight.k,
          .weight_row_bytes = has_codes ? RowCodes(args.weight.k)
                                        : args.weight.k * SizeOf(args.weight.format.dtype()),
          .num_rows = static_cast<int32_t>(args.x.rows()),
          .output = args.output};
}

LaunchShape BlockPerColumns(int64_t n, int64_t columns) {
  return {.grid = dim3(static_cast<unsigned>((n + columns - 1) / columns)),
          .block = dim3(kThreads),
          .after_previous = true};
}

// Two tiles per block halve the reading of x, once that leaves each SM enough blocks.
template <class T, class W, class Out>
cudaError_t LaunchTensorCores(const LaunchTarget& on, GemmParams params) {
  params.first_wave = static_cast<uint32_t>(kBlocksPerSm<W> * on.num_sms);
  constexpr int kWideBlocksPerSm = 4;
  const bool wide = params.n >= int64_t{kWideBlocksPerSm} * on.num_sms * 2 * kTileColumns;
  const auto kernel = wide ? TensorCoreGemm<T, W, Out, 2> : TensorCoreGemm<T, W, Out, 1>;
  return Launch(kernel, BlockPerColumns(params.n, wide ? 2 * kTileColumns : kTileColumns),
                on.stream, params);
}

// Launches the kernel for x of type T and weights of type W.
template <class T, class W>
cudaError_t LaunchFor(const LaunchTarget& on, const GemmArgs& args) {
  const GemmParams params = ParamsOf(args);
  if constexpr (sizeof(T) == sizeof(float)) {
    return Launch(FmaGemm<W>, BlockPerColumns(params.n, kWarps), on.stream, params);
  } else {
    return args.out.dtype == DType::kF32 ? LaunchTensorCores<T, W, float>(on, params)
                                         : LaunchTensorCores<T, W, T>(on, params);
  }
}

}  // namespace

bool TakesSkinnyGemm(const GemmArgs& args) {
  if (args.x.rows() > kMaxRows || args.weight.k % kChunk != 0) return false;
  // Rows of codes are always aligned, however many inputs they have.
  if (args.weight.format.has_codes()) return AccessOf({args.x}) == Access::kVectors;
  const TensorView weight(args.weight.data, args.weight.format.dtype(),
                          {args.weight.n, args.weight.k});
  return AccessOf({args.x, weight}) == Access::kVectors;
}

cudaError_t SkinnyGemm(const LaunchTarget& on, const GemmArgs& args) {
  if (args.weight.format.has_codes()) {
    return WithCodeType(args.weight.format, [&](auto code) {
      return WithActivationType(args.x.dtype, [&](auto type) {
        return LaunchFor<decltype(type), decltype(code)>(on, args);
      });
    });
  }
  return WithActivationType(args.weight.format.dtype(), [&](auto type) {
    using W = decltype(type);
    if (args.x.dtype == DType::kF32) return LaunchFor<float, W>(on, args);
    if constexpr (sizeof(W) == sizeof(uint16_t)) return LaunchFor<W, W>(on, args);
    return cudaErrorInvalidValue;
  });
}

}  // namespace tandem::cuda
