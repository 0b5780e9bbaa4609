#include <algorithm>

#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/launch.cuh"

// Merges the partial results of pairs (a sequence and a KV head) whose contexts were cut into
// pieces, and adds up the masses of chunks to those of blocks (block_mass). Sums run in the order
// of the keys, so that a fixed cut gives fixed bits.

namespace tandem::cuda {
namespace {

constexpr int kCombineThreads = 128;
constexpr int kCombineWarps = kCombineThreads / kWarpLanes;
constexpr int kMergesInFlight = 4;  // partial results that a thread loads at a time
// With fewer the compiler would save registers and load one by one.
[[maybe_unused]] constexpr int kCombineBlocksPerSm = 8;
constexpr int kBlocksPerFold = 128;  // blocks of the pool for one thread block to fold, at least
constexpr int kFoldsPerSm = 8;       // thread blocks that fold: enough to fill the device

// A running sum of 2^log_sum * output over partial results, relative to the largest 2^log_sum.
struct RunningMerge {
  float max;
  float sum;
  float4 output;

  // Adds a partial result whose sum of weights is `weight` * 2^log_sum. `x` is its output times
  // `weight`. A piece has the weight 1; another merge has its `max`, `sum` and `output`.
  __device__ __forceinline__ void Add(float log_sum, float weight, float4 x) {
    const float new_max = fmaxf(max, log_sum);
    const float base = FiniteMax(new_max);
    const float old_scale = ptx::Exp2(max - base);
    const float scale = ptx::Exp2(log_sum - base);
    max = new_max;
    sum = sum * old_scale + weight * scale;
    output.x = output.x * old_scale + x.x * scale;
    output.y = output.y * old_scale + x.y * scale;
    output.z = output.z * old_scale + x.z * scale;
    output.w = output.w * old_scale + x.w * scale;
  }
};

// Merges one row of one pair. A thread has four columns, and every `shares`-th of the pieces.
__device__ __forceinline__ void MergeRow(const DecodeParams& params, int32_t pair, int32_t row,
                                         const PairPartials& partials) {
  __shared__ RunningMerge merges[kCombineThreads];
  const int32_t columns = params.head_dim / 4;
  const int32_t shares = kCombineThreads / columns;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t column = thread % columns;
  const int32_t rows = params.heads.rows();
  RunningMerge merge = {-kInfinity, 0, make_float4(0, 0, 0, 0)};
  if (thread < shares * columns) {
    // Several loads are issued together, or each would be waited for by itself. Past the end the
    // last partial result is loaded again but not added: times a weight of 0 its infinities would
    // become NaN.
    for (int32_t first = thread / columns; first < partials.count;
         first += kMergesInFlight * shares) {
      float log_sums[kMergesInFlight];
      float4 outputs[kMergesInFlight];
#pragma unroll
      for (int i = 0; i < kMergesInFlight; ++i) {
        const int32_t slot = partials.Slot(min(first + i * shares, partials.count - 1));
        log_sums[i] = params.scratch.LogSums(slot, rows, params.head_dim)[row];
        outputs[i] = reinterpret_cast<const float4*>(params.scratch.Outputs(slot) +
                                                     int64_t{row} * params.head_dim)[column];
      }
#pragma unroll
      for (int i = 0; i < kMergesInFlight; ++i) {
        const bool is_there = first + i * shares < partials.count;
        merge.Add(is_there ? log_sums[i] : -kInfinity, 1,
                  is_there ? outputs[i] : make_float4(0, 0, 0, 0));
      }
    }
    merges[thread] = merge;
  }
  __syncthreads();
  if (thread >= columns) return;
  for (int32_t share = 1; share < shares; ++share) {
    const RunningMerge& other = merges[share * columns + column];
    merge.Add(other.max, other.sum, other.output);
  }

  const int32_t seq = pair / params.rule.num_kv_heads;
  const int32_t head = params.heads.FirstHead(pair % params.rule.num_kv_heads) + row;
  const float scale = merge.sum > 0 ? 1 / merge.sum : 0.0f;
  const float4 x = make_float4(merge.output.x * scale, merge.output.y * scale,
                               merge.output.z * scale, merge.output.w * scale);
  StoreFour(params.Output(seq, head) + column * 4 * ActivationBytes(params.act), params.act, x);
  if (params.lse != nullptr && column == 0) {
    params.lse[seq * params.lse_stride + head] =
        merge.sum > 0 ? (merge.max + log2f(merge.sum)) * kLn2 : -kInfinity;
  }
}

// The base 2 logarithm of a row's sum over all its keys. Warp.
__device__ __forceinline__ float RowLogSum(const DecodeParams& params, int32_t pair, int32_t row,
                                           const PairPartials& partials) {
  const int32_t lane = threadIdx.x % kWarpLanes;
  const int32_t pair_heads = params.rule.num_kv_heads;
  if (partials.count == 1) {
    const int64_t first = int64_t{pair / pair_heads} * params.heads.num_heads();
    return params.scratch.row_lse[first + params.heads.FirstHead(pair % pair_heads) + row];
  }
  float lane_max = -kInfinity;
  float sum = 0;
  for (int32_t k = lane; k < partials.count; k += kWarpLanes) {
    const float log_sum =
        params.scratch.LogSums(partials.Slot(k), params.heads.rows(), params.head_dim)[row];
    const float base = FiniteMax(fmaxf(lane_max, log_sum));
    sum = sum * ptx::Exp2(lane_max - base) + ptx::Exp2(log_sum - base);
    lane_max = fmaxf(lane_max, log_sum);
  }
  float max = lane_max;
#pragma unroll
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
  }
  sum *= ptx::Exp2(lane_max - FiniteMax(max));
#pragma unroll
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  return sum > 0 ? max + log2f(sum) : -kInfinity;
}

// Computes block_mass for every `folds`-th run of blocks of one sequence and KV head: adds up the
// masses of their chunks, relative to the sum of each row's weights, over the query heads.
__device__ __forceinline__ void FoldMass(const DecodeParams& params, int32_t first_pair,
                                         int32_t fold, int32_t folds) {
  __shared__ float row_log_sums[kMaxDecodeGroup];
  const DecodeHeads& heads = params.heads;
  const int32_t seq = first_pair / params.rule.num_kv_heads;
  const int32_t kv_head = first_pair % params.rule.num_kv_heads / heads.row_groups;
  const KeyRange seen = VisibleKeys(params.rule, params.context_lens[seq]);
  const int32_t first_chunk = seen.begin / kChunkTokens;
  const int32_t end_chunk = (seen.end + kChunkTokens - 1) / kChunkTokens;
  const int32_t chunks_shift = params.kv.block_shift - kChunkShift;  // log2 of chunks per block
  const float* masses = params.scratch.chunk_mass + (seq * int64_t{heads.num_kv_heads} + kv_head) *
                                                        params.scratch.mass_chunks * heads.group;
  float* out = params.block_mass + seq * params.mass_stride + int64_t{kv_head} * params.max_blocks;

  for (int32_t head = threadIdx.x / kWarpLanes; head < heads.group; head += kCombineWarps) {
    const int32_t pair = first_pair + head / kRowsPerTile;
    const PairPartials partials = PartialsOfPair(params.rule, params.Line(), pair);
    const float log_sum = RowLogSum(params, pair, head % kRowsPerTile, partials);
    if (threadIdx.x % kWarpLanes == 0) row_log_sums[head] = log_sum;
  }
  __syncthreads();

  for (int32_t block = fold * kCombineThreads + threadIdx.x; block < params.max_blocks;
       block += folds * kCombineThreads) {
    float mass = 0;
    for (int32_t chunk = max(first_chunk, block << chunks_shift);
         chunk < min(end_chunk, (block + 1) << chunks_shift); ++chunk) {
      for (int32_t head = 0; head < heads.group; ++head) {
        mass += ptx::Exp2(masses[int64_t{chunk} * heads.group + head] - row_log_sums[head]);
      }
    }
    out[block] = mass;
  }
}

// Thread blocks (x, y) with y below the rows of a pair merge one row, the others compute
// block_mass. x is either a part, which merges its last pair if that is cut there first, since no
// other pair of it can be; or, with block_mass or SplitMode::kFixed, a pair.
__global__ void __launch_bounds__(kCombineThreads, kCombineBlocksPerSm)
    CombineSplitsKernel(DecodeParams params, int32_t by_part) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const auto item = static_cast<int32_t>(blockIdx.x);
  const auto row = static_cast<int32_t>(blockIdx.y);
  const int32_t rows = params.heads.rows();
  int32_t pair = item;
  if (by_part != 0) {
    const SplitPart part = params.plan.parts[item];
    if (part.num_pairs == 0) return;
    pair = part.first_pair + part.num_pairs - 1;
  }
  const int32_t pair_head = pair % params.rule.num_kv_heads;
  if (row >= rows) {
    if (pair_head % params.heads.row_groups != 0) return;  // the KV head's first pair folds
    FoldMass(params, pair, row - rows, gridDim.y - rows);
    return;
  }
  if (row >= params.heads.RowsOf(pair_head)) return;
  const PairPartials partials = PartialsOfPair(params.rule, params.Line(), pair);
  if (partials.count == 1) return;
  if (by_part != 0 && partials.first_slot != params.rule.num_parts + item) return;
  MergeRow(params, pair, row, partials);
}

}  // namespace

cudaError_t CombineSplits(const LaunchTarget& on, const DecodeParams& params) {
  const bool by_part = params.rule.mode == SplitMode::kBalanced && params.block_mass == nullptr;
  const int32_t pairs = params.num_sequences * params.rule.num_kv_heads;
  int32_t folds = 0;
  if (params.block_mass != nullptr) {
    folds = std::clamp(params.max_blocks / kBlocksPerFold, 1,
                       std::max(1, kFoldsPerSm * on.num_sms / pairs));
  }
  LaunchShape shape;
  shape.grid = dim3(by_part ? params.rule.num_parts : pairs, params.heads.rows() + folds);
  shape.block = dim3(kCombineThreads);
  shape.after_previous = true;
  return Launch(CombineSplitsKernel, shape, on.stream, params, by_part ? 1 : 0);
}

}  // namespace tandem::cuda
