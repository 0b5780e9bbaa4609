#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sampling/draw.cuh"
#include "kernels/cuda/sampling/logits_processors.cuh"
#include "kernels/cuda/sampling/sample_cut.cuh"
#include "kernels/cuda/sampling/sample_row.cuh"
#include "kernels/cuda/sampling/sample_workspace.cuh"

// Samples rows, a thread block per row at a time. Each pass over the row is bounded by what one SM
// can read from the L2 cache: a greedy row takes one, a draw two, one of top_k or top_p two or
// three more.

namespace tandem::cuda {
namespace {

// Blocks beyond this take turns, each in its own part of the scratch: about one per SM runs at a
// time.
constexpr int32_t kMaxBlocks = 128;

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
__device__ void CollectTop(SampleWorkspace& shared, const ScoredRow& row, uint64_t last,
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
__device__ float ReportLogprobs(SampleWorkspace& shared, const ScoredRow& row, float highest,
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

__device__ DeviceSampledToken SampleRow(SampleWorkspace& shared, const SampleLaunch& launch,
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
  __shared__ SampleWorkspace shared;
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
