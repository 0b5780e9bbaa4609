#include <cmath>

#include "bench/classic_decode.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kPartitionTokens = 512;
constexpr int kTokensPerWarp = 16;  // of K at a time: two threads share a token
constexpr unsigned kFullMask = 0xffffffffu;

struct Problem {
  const uint16_t* q;     // [S, Hq, D]
  const uint16_t* pool;  // of the layer: [block][K|V][Hkv][block_tokens][D]
  uint16_t* out;         // [S, Hq, D]
  const int32_t* context_lens;
  const int32_t* table_ids;
  const int32_t* table_starts;
  float* partials;  // [S, Hq, partitions, D + 2], or null
  int32_t q_stride;
  int32_t out_stride;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t block_tokens;
  int32_t partition_tokens;  // of the context, per thread block
  float scale;
};

__device__ __forceinline__ float WarpMax(float value) {
  for (int lane = 16; lane > 0; lane /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullMask, value, lane));
  }
  return value;
}

__device__ __forceinline__ float WarpSum(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(kFullMask, value, lane);
  return value;
}

// Over the block; `scratch` has a float per warp and may be in use from an earlier call.
__device__ __forceinline__ float BlockMax(float value, float* scratch) {
  value = WarpMax(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) value = fmaxf(value, scratch[warp]);
  return value;
}

__device__ __forceinline__ float BlockSum(float value, float* scratch) {
  value = WarpSum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += scratch[warp];
  return sum;
}

// Row of K (0) or V (1) of a token.
template <int D>
__device__ __forceinline__ const uint16_t* RowOf(const Problem& p, int seq, int kv_head, int token,
                                                 int which) {
  const int block = p.table_ids[p.table_starts[seq] + token / p.block_tokens];
  const int64_t head = (int64_t{block} * 2 + which) * p.num_kv_heads + kv_head;
  return p.pool + (head * p.block_tokens + token % p.block_tokens) * D;
}

// Two threads per token, which take turns at vectors of 8 elements.
template <int D>
__device__ __forceinline__ float Dot(const float (&q)[D / 2], const uint16_t* row, int half) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const uint4 k = *reinterpret_cast<const uint4*>(row + (2 * i + half) * 8);
    const uint32_t pairs[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = ptx::UnpackBf16(pairs[j]);
      sum = fmaf(q[8 * i + 2 * j], pair.x, sum);
      sum = fmaf(q[8 * i + 2 * j + 1], pair.y, sum);
    }
  }
  return sum;
}

// The logits of tokens [begin, end) go to `logits`; returns the largest that this thread saw.
template <int D>
__device__ __forceinline__ float Logits(const Problem& p, int begin, int end, float* logits) {
  const int seq = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  const int kv_head = head / (p.num_heads / p.num_kv_heads);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = lane % 2;
  float q[D / 2];
  const uint16_t* q_row = p.q + int64_t{seq} * p.q_stride + int64_t{head} * D;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const uint4 packed = *reinterpret_cast<const uint4*>(q_row + (2 * i + half) * 8);
    const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = ptx::UnpackBf16(pairs[j]);
      q[8 * i + 2 * j] = pair.x * p.scale;
      q[8 * i + 2 * j + 1] = pair.y * p.scale;
    }
  }
  float largest = -INFINITY;
  for (int at = begin + warp * kTokensPerWarp; at < end; at += kWarps * kTokensPerWarp) {
    const int token = at + lane / 2;
    float sum = 0;
    if (token < end) sum = Dot<D>(q, RowOf<D>(p, seq, kv_head, token, 0), half);
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    if (token < end && half == 0) logits[token - begin] = sum;
    if (token < end) largest = fmaxf(largest, sum);
  }
  return largest;
}

// Adds weights[i] * V of token begin + i: as many lanes of a warp share a token as its row has
// vectors of 8 elements, and the warps take turns. What lanes and warps have is added up, the
// latter through `sums` [kWarps][D]; thread i < D has dimension i.
template <int D>
__device__ __forceinline__ float WeighValues(const Problem& p, int begin, int end,
                                             const float* weights, float* sums) {
  constexpr int kLanes = D / 8;
  constexpr int kTokens = 32 / kLanes;  // of a warp at a time
  const int seq = static_cast<int>(blockIdx.y);
  const int kv_head = static_cast<int>(blockIdx.x) / (p.num_heads / p.num_kv_heads);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_dim = lane % kLanes * 8;
  float sum[8] = {};
#pragma unroll 4
  for (int token = begin + warp * kTokens + lane / kLanes; token < end; token += kWarps * kTokens) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(RowOf<D>(p, seq, kv_head, token, 1) + first_dim);
    const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
    const float weight = weights[token - begin];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = ptx::UnpackBf16(pairs[j]);
      sum[2 * j] = fmaf(weight, pair.x, sum[2 * j]);
      sum[2 * j + 1] = fmaf(weight, pair.y, sum[2 * j + 1]);
    }
  }
  for (int distance = kLanes; distance < 32; distance *= 2) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += __shfl_xor_sync(kFullMask, sum[i], distance);
  }
  if (lane < kLanes) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[warp * D + first_dim + i] = sum[i];
  }
  __syncthreads();
  float total = 0;
  if (threadIdx.x < D) {
    for (int w = 0; w < kWarps; ++w) total += sums[w * D + static_cast<int>(threadIdx.x)];
  }
  return total;
}

// Grid (heads, sequences, partitions). A partition that starts past the context has nothing to do.
template <int D>
__global__ void __launch_bounds__(kThreads) DecodeKernel(Problem p) {
  __shared__ float scratch[kWarps];
  __shared__ float sums[kWarps * D];
  float* logits = ptx::DynamicShared<float>();
  const int seq = static_cast<int>(blockIdx.y);
  const int context = p.context_lens[seq];
  const int begin = static_cast<int>(blockIdx.z) * p.partition_tokens;
  const int end = min(context, begin + p.partition_tokens);
  if (begin >= end) return;

  const float largest = BlockMax(Logits<D>(p, begin, end, logits), scratch);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < end - begin; i += kThreads) {
    logits[i] = expf(logits[i] - largest);
    sum += logits[i];
  }
  sum = BlockSum(sum, scratch);
  __syncthreads();
  const float value = WeighValues<D>(p, begin, end, logits, sums) / sum;

  const int dim = static_cast<int>(threadIdx.x);
  const int64_t row = int64_t{seq} * p.num_heads + blockIdx.x;
  if (p.partials == nullptr) {
    if (dim < D) {
      p.out[int64_t{seq} * p.out_stride + int64_t{blockIdx.x} * D + dim] = ptx::ToBf16(value);
    }
    return;
  }
  float* partial = p.partials + (row * gridDim.z + blockIdx.z) * (D + 2);
  if (dim < D) partial[dim] = value;
  if (dim == 0) {
    partial[D] = largest;
    partial[D + 1] = sum;
  }
}

// Grid (heads, sequences), a thread per dimension.
template <int D>
__global__ void __launch_bounds__(D) AddPartitionsKernel(Problem p, int max_partitions) {
  const int seq = static_cast<int>(blockIdx.y);
  const int context = p.context_lens[seq];
  const int count = (context + p.partition_tokens - 1) / p.partition_tokens;
  const int64_t row = int64_t{seq} * p.num_heads + blockIdx.x;
  const float* partials = p.partials + row * max_partitions * (D + 2);
  float largest = -INFINITY;
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, partials[i * (D + 2) + D]);
  float value = 0;
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    const float* partial = partials + i * (D + 2);
    const float weight = partial[D + 1] * expf(partial[D] - largest);
    value = fmaf(weight, partial[threadIdx.x], value);
    sum += weight;
  }
  p.out[int64_t{seq} * p.out_stride + int64_t{blockIdx.x} * D + threadIdx.x] =
      ptx::ToBf16(value / sum);
}

template <int D>
cudaError_t Run(const LaunchTarget& on, Problem p, int32_t num_sequences, int32_t max_context) {
  const bool partitioned = p.partials != nullptr;
  p.partition_tokens = partitioned ? kPartitionTokens : max_context;
  const auto partitions =
      static_cast<unsigned>((max_context + p.partition_tokens - 1) / p.partition_tokens);
  const dim3 rows(static_cast<unsigned>(p.num_heads), static_cast<unsigned>(num_sequences));
  const cudaError_t error =
      Launch(DecodeKernel<D>,
             {.grid = dim3(rows.x, rows.y, partitions),
              .block = dim3(kThreads),
              .shared_bytes = static_cast<size_t>(p.partition_tokens) * sizeof(float)},
             on.stream, p);
  if (error != cudaSuccess || !partitioned) return error;
  return Launch(AddPartitionsKernel<D>, {.grid = rows, .block = dim3(D)}, on.stream, p,
                static_cast<int>(partitions));
}

}  // namespace

size_t ClassicDecodeScratchBytes(const AttentionArgs& args, int32_t max_context) {
  const auto partitions = (max_context + kPartitionTokens - 1) / kPartitionTokens;
  return static_cast<size_t>(args.q.rows()) * args.q.shape[1] * partitions *
         (args.pool.head_dim + 2) * sizeof(float);
}

cudaError_t RunClassicDecode(const LaunchTarget& on, const ClassicDecode& call) {
  const AttentionArgs& a = call.attention;
  const Problem problem = {
      .q = static_cast<const uint16_t*>(a.q.data),
      .pool = reinterpret_cast<const uint16_t*>(a.pool.Extent(a.layer, 0)),
      .out = static_cast<uint16_t*>(a.out.data),
      .context_lens = a.context_lens.device(),
      .table_ids = a.block_tables.ids.device(),
      .table_starts = a.block_tables.starts.device(),
      .partials = call.scratch,
      .q_stride = static_cast<int32_t>(a.q.row_stride),
      .out_stride = static_cast<int32_t>(a.out.row_stride),
      .num_heads = static_cast<int32_t>(a.q.shape[1]),
      .num_kv_heads = a.pool.num_kv_heads,
      .block_tokens = a.pool.block_tokens,
      .partition_tokens = 0,
      .scale = a.scale,
  };
  const auto sequences = static_cast<int32_t>(a.context_lens.size());
  if (a.pool.head_dim == 64) return Run<64>(on, problem, sequences, call.max_context);
  if (a.pool.head_dim == 128) return Run<128>(on, problem, sequences, call.max_context);
  return cudaErrorInvalidValue;
}

}  // namespace tandem::cuda
