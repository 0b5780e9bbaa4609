#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/token_bias.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sampling/sample_cut.cuh"
#include "kernels/cuda/sampling/sample_row.cuh"

// Samples rows, a thread block per row at a time. Each pass over the row is bounded by what one SM
// can read from the L2 cache: a greedy row takes one, a draw two, one of top_k or top_p two or
// three more.

namespace tandem::cuda {
namespace {

// Blocks beyond this take turns, each in its own part of the scratch: about one per SM runs at a
// time.
constexpr int32_t kMaxBlocks = 128;

struct Workspace {
  CutWorkspace cut;
  uint64_t best_of_warp[kMaxSampleThreads / 32];
  float highest_of_warp[kMaxSampleThreads / 32];
  bool finite_in_warp[kMaxSampleThreads / 32];
  uint64_t uniform_mass;
  int32_t chosen;
  uint32_t num_collected;
  float unbiased[kMaxLogitBiases];  // the logits that biases were added to
};

// ---- biases ----

__device__ __forceinline__ int32_t NumBiases(const DeviceSampleRow& row) {
  return (row.ids_end - row.biases_begin) / 2;
}

// Adds the biases to the row in place. A logit that is not finite stays what it is.
__device__ void AddBiases(Workspace& shared, const SampleLaunch& launch, const DeviceSampleRow& row,
                          float* logits) {
  const int32_t* entries = launch.token_ids + row.biases_begin;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < NumBiases(row);
       i += static_cast<int32_t>(blockDim.x)) {
    float& logit = logits[entries[2 * i]];
    shared.unbiased[i] = logit;
    logit += __int_as_float(entries[2 * i + 1]);
  }
  __syncthreads();
}

__device__ void RemoveBiases(const Workspace& shared, const SampleLaunch& launch,
                             const DeviceSampleRow& row, float* logits) {
  __syncthreads();
  const int32_t* entries = launch.token_ids + row.biases_begin;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < NumBiases(row);
       i += static_cast<int32_t>(blockDim.x)) {
    logits[entries[2 * i]] = shared.unbiased[i];
  }
  __syncthreads();
}

// ---- exclusions ----

__device__ __forceinline__ bool HasAllowed(const DeviceSampleRow& row) {
  return row.allowed_begin < row.biases_begin;
}

__device__ __forceinline__ bool HasExclusions(const DeviceSampleRow& row) {
  return row.excluded_begin < row.biases_begin;
}

// Marks the tokens that the row excludes; comes before CountTokens.
__device__ void MarkExcluded(const SampleLaunch& launch, const DeviceSampleRow& row,
                             int32_t* counts) {
  const auto first = static_cast<int32_t>(threadIdx.x);
  const auto step = static_cast<int32_t>(blockDim.x);
  if (HasAllowed(row)) {
    for (int32_t id = first; id < launch.vocab; id += step) counts[id] = kExcluded;
    __syncthreads();
    for (int32_t i = row.allowed_begin + first; i < row.biases_begin; i += step) {
      counts[launch.token_ids[i]] = 0;
    }
    __syncthreads();
  }
  for (int32_t i = row.excluded_begin + first; i < row.allowed_begin; i += step) {
    counts[launch.token_ids[i]] = kExcluded;
  }
  __syncthreads();
}

// ---- penalties ----

__device__ __forceinline__ bool HasPenalties(const DeviceSampleRow& row) {
  return row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
}

// Counts how often each token is in the output, or marks that it is in the prompt alone.
__device__ void CountTokens(const SampleLaunch& launch, const DeviceSampleRow& row,
                            int32_t* counts) {
  const auto first = static_cast<int32_t>(threadIdx.x);
  const auto step = static_cast<int32_t>(blockDim.x);
  for (int32_t i = row.output_begin + first; i < row.excluded_begin; i += step) {
    atomicAdd(&counts[launch.token_ids[i]], 1);
  }
  __syncthreads();
  for (int32_t i = row.prompt_begin + first; i < row.output_begin; i += step) {
    atomicCAS(&counts[launch.token_ids[i]], 0, kPromptOnly);
  }
  __syncthreads();
}

__device__ void ForgetTokens(const SampleLaunch& launch, const DeviceSampleRow& row,
                             int32_t* counts) {
  __syncthreads();
  const auto first = static_cast<int32_t>(threadIdx.x);
  const auto step = static_cast<int32_t>(blockDim.x);
  if (HasAllowed(row)) {
    for (int32_t id = first; id < launch.vocab; id += step) counts[id] = 0;
    return;
  }
  for (int32_t i = row.prompt_begin + first; i < row.allowed_begin; i += step) {
    counts[launch.token_ids[i]] = 0;
  }
}

// ---- the highest logit and the best token ----

struct Highest {
  uint64_t rank;  // of the best token after penalties
  float logit;    // the highest logit before penalties
  bool finite;    // whether all logits are finite
};

__device__ Highest FindHighest(Workspace& shared, const ScoredRow& row) {
  float best_score = -HUGE_VALF;
  int32_t best_id = -1;
  float highest = -FLT_MAX;
  float poison = 0;  // 0 * x is NaN for an x that is not finite
  ForEachToken(row, WholeRow(row), [&](int32_t id, float logit, float score) {
    poison = __fmaf_rn(logit, 0.0f, poison);
    highest = fmaxf(highest, logit);
    if (score > best_score) {
      best_score = score;
      best_id = id;
    }
  });
  uint64_t best = best_id < 0 ? kLastRank : RankOf(best_score, best_id);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    best = min(best, __shfl_xor_sync(0xffffffffu, best, distance));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, distance));
  }
  bool finite = __all_sync(0xffffffffu, poison == 0) != 0;
  if (threadIdx.x % 32 == 0) {
    shared.finite_in_warp[threadIdx.x / 32] = finite;
    shared.best_of_warp[threadIdx.x / 32] = best;
    shared.highest_of_warp[threadIdx.x / 32] = highest;
  }
  __syncthreads();
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
    best = min(best, shared.best_of_warp[warp]);
    highest = fmaxf(highest, shared.highest_of_warp[warp]);
    finite = finite && shared.finite_in_warp[warp];
  }
  return {best, highest, finite};
}

// ---- the draw ----

// Which tokens are left to draw from after top_k, top_p and min_p.
struct Filter {
  uint64_t last;  // rank of the last token that top_k and top_p keep
  float min_p;

  __device__ __forceinline__ uint64_t Mass(const Weights& weights, float score, int32_t id) const {
    if (RankOf(score, id) > last) return 0;
    const float weight = weights.Of(score);
    return weight < min_p ? 0 : Weights::Mass(weight);
  }
};

__device__ uint64_t LastKept(Workspace& shared, const ScoredRow& row,
                             const DeviceSampleRow& request, const Weights& weights) {
  const bool top_k = request.top_k > 0 && request.top_k < row.vocab;
  if (!top_k && request.top_p >= 1) return kLastRank;
  uint64_t mass = FillBuckets(shared.cut, row, weights);
  uint64_t last = kLastRank;
  if (top_k) {
    const CutRange range = FindBin(shared.cut, shared.cut.buckets, Measure::kTokens,
                                   static_cast<uint64_t>(request.top_k));
    mass = range.mass_before;
    if (range.mass > 0) {  // else the bucket has no mass, and which of it are kept is all the same
      const Cut cut = FindCut(shared.cut, row, weights, range, Measure::kTokens);
      last = cut.last;
      mass = cut.mass;
    }
  }
  if (request.top_p >= 1) return last;
  const double limit = ceil(static_cast<double>(request.top_p) * static_cast<double>(mass));
  const CutRange range = FindBin(shared.cut, shared.cut.buckets, Measure::kMass,
                                 max(static_cast<uint64_t>(limit), uint64_t{1}));
  return FindCut(shared.cut, row, weights, range, Measure::kMass).last;
}

// The range of ids whose masses warp `warp` of the block sums; ids rise from warp to warp.
__device__ __forceinline__ TokenRange RangeOfWarp(const ScoredRow& row, int warp) {
  const auto warps = static_cast<int32_t>(blockDim.x / 32);
  const int32_t size = ((row.vocab + warps - 1) / warps + kQuad - 1) / kQuad * kQuad;
  return {min(warp * size, row.vocab), min((warp + 1) * size, row.vocab),
          static_cast<int32_t>(threadIdx.x % 32), 32};
}

// Finds the token of a range, ids rising, at which the running sum of masses exceeds `mass`.
__device__ int32_t PickInRange(Workspace& shared, const ScoredRow& row, const Weights& weights,
                               const Filter& filter, TokenRange range) {
  const auto threads = static_cast<int32_t>(blockDim.x);
  const int32_t per_thread = (range.end - range.begin + threads - 1) / threads;
  const int32_t begin = range.begin + static_cast<int32_t>(threadIdx.x) * per_thread;
  const int32_t end = min(begin + per_thread, range.end);
  uint64_t own = 0;
  for (int32_t id = begin; id < end; ++id) own += filter.Mass(weights, row.ScoreOf(id), id);
  uint64_t total;
  uint64_t sum = SumBefore(shared.cut, own, total);
  const uint64_t wanted = shared.uniform_mass;
  if (sum <= wanted && wanted < sum + own) {
    for (int32_t id = begin; id < end && sum <= wanted; ++id) {
      sum += filter.Mass(weights, row.ScoreOf(id), id);
      shared.chosen = id;
    }
  }
  __syncthreads();
  return shared.chosen;
}

// The token at which the running sum of masses, ids rising, exceeds `uniform` of their total.
__device__ int32_t Pick(Workspace& shared, const ScoredRow& row, const Weights& weights,
                        const Filter& filter, double uniform) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  uint64_t own = 0;
  ForEachToken(row, RangeOfWarp(row, warp),
               [&](int32_t id, float, float score) { own += filter.Mass(weights, score, id); });
  uint64_t total;
  const uint64_t before = SumBefore(shared.cut, own, total);
  const auto target = static_cast<uint64_t>(uniform * static_cast<double>(total));
  const uint64_t wanted = min(target, total - 1);
  const bool mine = before <= wanted && wanted < before + own;
  // The first lane of the chosen warp knows the sum before its range.
  const uint64_t before_warp = __shfl_sync(0xffffffffu, before, 0);
  if (mine) {
    shared.chosen = warp;
    shared.uniform_mass = wanted - before_warp;
  }
  __syncthreads();
  const int32_t chosen_warp = shared.chosen;
  return PickInRange(shared, row, weights, filter, RangeOfWarp(row, chosen_warp));
}

__device__ int32_t Draw(Workspace& shared, const ScoredRow& row, const DeviceSampleRow& request,
                        float highest) {
  const Weights weights(highest, request.temperature);
  const Filter filter = {LastKept(shared, row, request, weights), request.min_p};
  return Pick(shared, row, weights, filter, request.uniform);
}

// ---- logprobs ----

// The order of the alternatives: by falling logit, then by rising id. While they are sorted, the
// field logprob holds the logit.
__device__ __forceinline__ bool RanksBefore(const DeviceTokenLogprob& a,
                                            const DeviceTokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token_id < b.token_id);
}

// A bitonic sort of n entries, with as many virtual last entries behind them as make a power of
// two.
// Source: Batcher, "Sorting networks and their applications", 1968.
__device__ void SortByRank(DeviceTokenLogprob* top, int32_t n) {
  for (int32_t size = 2; size / 2 < n; size *= 2) {
    for (int32_t flip = size - 1; flip > 0; flip = flip == size - 1 ? size / 4 : flip / 2) {
      for (auto i = static_cast<int32_t>(threadIdx.x); i < n;
           i += static_cast<int32_t>(blockDim.x)) {
        const int32_t other = i ^ flip;
        if (other <= i || other >= n || !RanksBefore(top[other], top[i])) continue;
        const DeviceTokenLogprob first = top[other];
        top[other] = top[i];
        top[i] = first;
      }
      __syncthreads();
    }
  }
}

// Collects the tokens up to rank `last`, of which there are n, and sorts them by rank.
__device__ void CollectTop(Workspace& shared, const ScoredRow& row, uint64_t last,
                           DeviceTokenLogprob* top, int32_t n) {
  if (threadIdx.x == 0) shared.num_collected = 0;
  __syncthreads();
  ForEachToken(row, WholeRow(row), [&](int32_t id, float logit, float) {
    if (RankOf(logit, id) <= last) top[atomicAdd(&shared.num_collected, 1u)] = {id, logit};
  });
  __syncthreads();
  SortByRank(top, n);
}

// Writes the alternatives and returns the sampled token's log-probability, both before penalties.
__device__ float ReportLogprobs(Workspace& shared, const ScoredRow& row, float highest,
                                int32_t sampled, DeviceTokenLogprob* top, int32_t num_top) {
  const Weights weights(highest, 1);
  const uint64_t mass =
      num_top > 0 ? FillBuckets(shared.cut, row, weights) : MassOfRow(shared.cut, row, weights);
  const double log_total = highest + log(Weights::ToDouble(mass));
  if (num_top > 0) {
    uint64_t last = kLastRank;
    if (num_top < row.vocab) {
      const CutRange range =
          FindBin(shared.cut, shared.cut.buckets, Measure::kTokens, static_cast<uint64_t>(num_top));
      last = FindCut(shared.cut, row, weights, range, Measure::kTokens).last;
    }
    CollectTop(shared, row, last, top, num_top);
    for (auto i = static_cast<int32_t>(threadIdx.x); i < num_top;
         i += static_cast<int32_t>(blockDim.x)) {
      top[i].logprob = static_cast<float>(top[i].logprob - log_total);
    }
  }
  return static_cast<float>(row.logits[sampled] - log_total);
}

// ---- rows ----

__device__ DeviceSampledToken SampleRow(Workspace& shared, const SampleLaunch& launch,
                                        const DeviceSampleRow& request, float* logits,
                                        ScoredRow row) {
  const bool biased = NumBiases(request) > 0;
  if (biased) AddBiases(shared, launch, request, logits);
  Highest highest = FindHighest(shared, row);
  int32_t token = IdOf(highest.rank);
  if (!highest.finite) {
    token = kRowOverflowed;
  } else if (request.given_token >= 0) {
    token = request.given_token;
  } else if (HasExclusions(request) && ScoreOf(highest.rank) == -FLT_MAX) {
    token = kRowAllExcluded;
  } else if (request.temperature > 0) {
    token = Draw(shared, row, request, ScoreOf(highest.rank));
  }
  if (biased) RemoveBiases(shared, launch, request, logits);
  float logprob = 0;
  if (token >= 0 && request.num_logprobs >= 0) {
    row.counts = nullptr;
    if (biased) highest = FindHighest(shared, row);
    logprob = ReportLogprobs(shared, row, highest.logit, token, launch.top + request.logprobs_begin,
                             request.num_logprobs);
  }
  return {token, logprob};
}

// The counts, one per token, that a thread block has in the scratch: padded to a multiple of 16
// bytes.
__host__ __device__ __forceinline__ int64_t CountsOfBlock(int32_t vocab) {
  return (int64_t{vocab} + kQuad - 1) / kQuad * kQuad;
}

__global__ void __launch_bounds__(kMaxSampleThreads, 1)
    SampleRows(SampleLaunch launch, Access access) {
  __shared__ Workspace shared;
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  int32_t* counts =
      static_cast<int32_t*>(launch.scratch) + blockIdx.x * CountsOfBlock(launch.vocab);
  for (auto i = static_cast<int32_t>(blockIdx.x); i < launch.num_rows;
       i += static_cast<int32_t>(gridDim.x)) {
    const DeviceSampleRow request = launch.rows[i];
    const bool penalties = HasPenalties(request);
    const bool exclusions = HasExclusions(request);
    if (exclusions) MarkExcluded(launch, request, counts);
    if (penalties) CountTokens(launch, request, counts);
    float* const logits = launch.logits + i * launch.row_stride;
    const ScoredRow row = {.logits = logits,
                           .counts = penalties || exclusions ? counts : nullptr,
                           .vocab = launch.vocab,
                           .access = access,
                           .repetition_penalty = request.repetition_penalty,
                           .presence_penalty = request.presence_penalty,
                           .frequency_penalty = request.frequency_penalty};
    const DeviceSampledToken sampled = SampleRow(shared, launch, request, logits, row);
    if (threadIdx.x == 0) launch.sampled[i] = sampled;
    if (penalties || exclusions) ForgetTokens(launch, request, counts);
    __syncthreads();  // before the next row takes the workspace
  }
}

// The threads of a block: a power of two, so that the bins of a histogram are shared out evenly.
unsigned ThreadsFor(int32_t vocab) {
  constexpr int32_t kTokensPerThread = 16;
  unsigned threads = 32;
  while (threads < kMaxSampleThreads && static_cast<int32_t>(threads) * kTokensPerThread < vocab) {
    threads *= 2;
  }
  return threads;
}

}  // namespace

size_t SampleScratchBytes(int32_t num_rows, int32_t vocab) {
  return static_cast<size_t>(std::min(num_rows, kMaxBlocks) * CountsOfBlock(vocab)) *
         sizeof(int32_t);
}

cudaError_t Sample(const LaunchTarget& on, const SampleLaunch& launch) {
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(std::min(launch.num_rows, kMaxBlocks))),
      .block = dim3(ThreadsFor(launch.vocab)),
      .after_previous = true};
  const TensorView logits = TensorView(launch.logits, DType::kF32, {launch.num_rows, launch.vocab})
                                .WithRowStride(launch.row_stride);
  return Launch(SampleRows, shape, on.stream, launch, AccessOf({logits}));
}

}  // namespace tandem::cuda
