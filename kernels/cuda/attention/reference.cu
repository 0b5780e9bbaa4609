#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;  // also the keys that a block looks at in one go
constexpr int kMaxHeadDim = 256;

struct ReferenceParams {
  PagedKv kv;
  DType kv_type = DType::kBF16;
  double scale = 0;  // from the product of q and k as stored to a logit
  double softcap = 0;
  double value_scale = 1;
  int32_t window = 0;
  int32_t head_dim = 0;
  int32_t num_heads = 0;
  int32_t group = 0;
  int32_t num_sequences = 0;
  const int32_t* query_starts = nullptr;
  const int32_t* context_lens = nullptr;
  const int32_t* block_ids = nullptr;
  const int32_t* block_starts = nullptr;
  DType act = DType::kF32;
  const void* q = nullptr;
  int64_t q_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  float* lse = nullptr;
  int64_t lse_stride = 0;
  float* block_mass = nullptr;
  int64_t mass_stride = 0;
  int32_t max_blocks = 0;
};

__device__ __forceinline__ float LoadElement(const void* from, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(from)[index];
    case DType::kBF16:
      return ptx::FromBf16(static_cast<const uint16_t*>(from)[index]);
    case DType::kF16:
      return ptx::FromF16(static_cast<const uint16_t*>(from)[index]);
    default:
      return ptx::FromE4m3(static_cast<const uint8_t*>(from)[index]);
  }
}

__device__ __forceinline__ void StoreElement(void* to, DType dtype, int64_t index, float x) {
  if (dtype == DType::kF32) {
    static_cast<float*>(to)[index] = x;
  } else {
    static_cast<uint16_t*>(to)[index] = dtype == DType::kBF16 ? ptx::ToBf16(x) : ptx::ToF16(x);
  }
}

// One query row and the keys [begin, end) that it sees.
struct ReferenceRow {
  int32_t token;
  int32_t seq;
  int32_t head;
  int32_t begin;
  int32_t end;
};

__device__ __forceinline__ ReferenceRow FindRow(const ReferenceParams& params, int32_t token,
                                                int32_t head) {
  int32_t low = 0;
  int32_t high = params.num_sequences;  // query_starts[low] <= token < query_starts[high]
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (params.query_starts[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  // The last row of a sequence sees all of its context. A row without a context sees nothing.
  const int32_t rows_after = params.query_starts[low + 1] - 1 - token;
  const int32_t end = max(0, params.context_lens[low] - rows_after);
  const int32_t begin = params.window > 0 ? max(0, end - params.window) : 0;
  return {token, low, head, begin, end};
}

__device__ __forceinline__ const unsigned char* KeyRow(const ReferenceParams& params,
                                                       const ReferenceRow& row, int32_t key) {
  const int32_t block =
      params.block_ids[params.block_starts[row.seq] + (key >> params.kv.block_shift)];
  return params.kv.Keys(block, row.head / params.group, key);
}

// The logit of a key for a row of q, which lies in shared memory. Lane.
__device__ __forceinline__ double Logit(const ReferenceParams& params, const ReferenceRow& row,
                                        const float* q, int32_t key) {
  const unsigned char* keys = KeyRow(params, row, key);
  double sum = 0;
  for (int32_t d = 0; d < params.head_dim; ++d) {
    sum += static_cast<double>(q[d]) * LoadElement(keys, params.kv_type, d);
  }
  const double logit = sum * params.scale;
  if (params.softcap == 0) return logit;
  return params.softcap * (1 - 2 / (1 + exp(2 * logit / params.softcap)));  // tanh
}

// Copies the row of q to shared memory. Block.
__device__ __forceinline__ void LoadQuery(const ReferenceParams& params, const ReferenceRow& row,
                                          float* q) {
  const int64_t first = row.token * params.q_stride + int64_t{row.head} * params.head_dim;
  __syncthreads();  // an earlier row may still be read
  for (int32_t d = threadIdx.x; d < params.head_dim; d += kThreads) {
    q[d] = LoadElement(params.q, params.act, first + d);
  }
  __syncthreads();
}

// The softmax over the keys that were looked at so far, the same in all threads.
struct ReferenceSoftmax {
  double max;
  double sum;

  // Puts the weights of kThreads keys from `first` on into shared memory, relative to the new
  // maximum, and returns what earlier weights are to be multiplied by. Block.
  __device__ __forceinline__ double Add(const ReferenceParams& params, const ReferenceRow& row,
                                        const float* q, int32_t first, double* weights) {
    const int32_t key = first + static_cast<int32_t>(threadIdx.x);
    const double nothing = -static_cast<double>(kInfinity);
    const double logit = key < row.end ? Logit(params, row, q, key) : nothing;
    __syncthreads();  // until all have read the previous weights
    weights[threadIdx.x] = logit;
    __syncthreads();
    const double old_max = max;
    for (int i = 0; i < kThreads; ++i) max = fmax(max, weights[i]);
    __syncthreads();
    weights[threadIdx.x] = logit == nothing ? 0 : exp(logit - max);
    __syncthreads();
    const double rescale = old_max == nothing ? 0 : exp(old_max - max);
    sum *= rescale;
    for (int i = 0; i < kThreads; ++i) sum += weights[i];
    return rescale;
  }
};

// Attention of one query row per thread block: grid (query head, token).
__global__ void __launch_bounds__(kThreads, 8) AttentionReferenceKernel(ReferenceParams params) {
  __shared__ float q[kMaxHeadDim];
  __shared__ double weights[kThreads];
  constexpr int kColumns = kMaxHeadDim / kThreads;
  const ReferenceRow row = FindRow(params, blockIdx.y, blockIdx.x);
  LoadQuery(params, row, q);

  ReferenceSoftmax softmax = {-static_cast<double>(kInfinity), 0};
  double output[kColumns] = {};
  for (int32_t first = row.begin; first < row.end; first += kThreads) {
    const double rescale = softmax.Add(params, row, q, first, weights);
    for (int c = 0; c < kColumns; ++c) output[c] *= rescale;
    for (int32_t key = first; key < min(row.end, first + kThreads); ++key) {
      const unsigned char* values = KeyRow(params, row, key) + params.kv.value_bytes;
      for (int c = 0; c < kColumns; ++c) {
        const int32_t d = threadIdx.x + c * kThreads;
        if (d >= params.head_dim) continue;
        output[c] += weights[key - first] * LoadElement(values, params.kv_type, d);
      }
    }
  }

  const double scale = softmax.sum > 0 ? params.value_scale / softmax.sum : 0;
  const int64_t first = row.token * params.out_stride + int64_t{row.head} * params.head_dim;
  for (int c = 0; c < kColumns; ++c) {
    const int32_t d = threadIdx.x + c * kThreads;
    if (d >= params.head_dim) continue;
    StoreElement(params.out, params.act, first + d, static_cast<float>(output[c] * scale));
  }
  if (params.lse == nullptr || threadIdx.x != 0) return;
  params.lse[row.token * params.lse_stride + row.head] =
      softmax.sum > 0 ? static_cast<float>(softmax.max + log(softmax.sum)) : -kInfinity;
}

// block_mass of a decode step, with a thread block per (KV head, sequence): it goes through the
// query heads of the group, for each first computing its sum, then the weights of each block of the
// pool, which one thread adds up.
__global__ void __launch_bounds__(kThreads, 8) BlockMassReferenceKernel(ReferenceParams params) {
  __shared__ float q[kMaxHeadDim];
  __shared__ double weights[kThreads];
  const int32_t kv_head = blockIdx.x;
  const int32_t seq = blockIdx.y;
  float* out = params.block_mass + seq * params.mass_stride + int64_t{kv_head} * params.max_blocks;
  for (int32_t block = threadIdx.x; block < params.max_blocks; block += kThreads) out[block] = 0;

  for (int32_t i = 0; i < params.group; ++i) {
    const ReferenceRow row = FindRow(params, params.query_starts[seq], kv_head * params.group + i);
    LoadQuery(params, row, q);
    ReferenceSoftmax softmax = {-static_cast<double>(kInfinity), 0};
    for (int32_t first = row.begin; first < row.end; first += kThreads) {
      softmax.Add(params, row, q, first, weights);
    }
    for (int32_t block = threadIdx.x; block < params.max_blocks; block += kThreads) {
      const int32_t end = min(row.end, (block + 1) << params.kv.block_shift);
      double mass = 0;
      for (int32_t key = max(row.begin, block << params.kv.block_shift); key < end; ++key) {
        mass += exp(Logit(params, row, q, key) - softmax.max);
      }
      if (mass > 0) out[block] += static_cast<float>(mass / softmax.sum);
    }
  }
}

ReferenceParams MakeReferenceParams(const AttentionArgs& args) {
  ReferenceParams params;
  params.kv = MakePagedKv(args.pool, args.layer);
  params.kv_type = args.pool.dtype;
  params.scale = static_cast<double>(args.scale) * args.pool.k_scale;
  params.softcap = args.softcap;
  params.value_scale = args.pool.v_scale;
  params.window = args.window;
  params.head_dim = args.pool.head_dim;
  params.num_heads = static_cast<int32_t>(args.q.shape[1]);
  params.group = params.num_heads / args.pool.num_kv_heads;
  params.num_sequences = static_cast<int32_t>(args.context_lens.size());
  params.query_starts = args.query_starts.device();
  params.context_lens = args.context_lens.device();
  params.block_ids = args.block_tables.ids.device();
  params.block_starts = args.block_tables.starts.device();
  params.act = args.q.dtype;
  params.q = args.q.data;
  params.q_stride = args.q.row_stride;
  params.out = args.out.data;
  params.out_stride = args.out.row_stride;
  params.lse = static_cast<float*>(args.lse.data);
  params.lse_stride = args.lse.row_stride;
  params.block_mass = static_cast<float*>(args.block_mass.data);
  params.mass_stride = args.block_mass.row_stride;
  params.max_blocks =
      args.block_mass.present() ? static_cast<int32_t>(args.block_mass.shape[2]) : 0;
  return params;
}

}  // namespace

cudaError_t AttentionReference(const LaunchTarget& on, const AttentionArgs& args) {
  if (args.pool.head_dim > kMaxHeadDim) return cudaErrorInvalidValue;
  const ReferenceParams params = MakeReferenceParams(args);
  LaunchShape shape;
  shape.grid = dim3(params.num_heads, static_cast<unsigned>(args.q.shape[0]));
  shape.block = dim3(kThreads);
  const cudaError_t error = Launch(AttentionReferenceKernel, shape, on.stream, params);
  if (error != cudaSuccess || params.block_mass == nullptr) return error;
  shape.grid = dim3(args.pool.num_kv_heads, params.num_sequences);
  return Launch(BlockMassReferenceKernel, shape, on.stream, params);
}

}  // namespace tandem::cuda
