#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sampling/sample_cut.cuh"
#include "kernels/cuda/sampling/sample_row.cuh"
#include "kernels/cuda/sampling/sample_workspace.cuh"

// The choice of a token: the best one, or one drawn from those that top_k, top_p and min_p leave.
// All threads of the block call these together, with the same arguments.

namespace tandem::cuda {

// ---- the highest logit and the best token ----

struct Highest {
  uint64_t rank;  // of the best token after penalties
  float logit;    // the highest logit before penalties
  bool finite;    // whether all logits are finite
};

__device__ inline Highest FindHighest(SampleWorkspace& shared, const ScoredRow& row) {
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

__device__ inline uint64_t LastKept(SampleWorkspace& shared, const ScoredRow& row,
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
__device__ inline int32_t PickInRange(SampleWorkspace& shared, const ScoredRow& row,
                                      const Weights& weights, const Filter& filter,
                                      TokenRange range) {
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
__device__ inline int32_t Pick(SampleWorkspace& shared, const ScoredRow& row,
                               const Weights& weights, const Filter& filter, double uniform) {
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

__device__ inline int32_t Draw(SampleWorkspace& shared, const ScoredRow& row,
                               const DeviceSampleRow& request, float highest) {
  const Weights weights(highest, request.temperature);
  const Filter filter = {LastKept(shared, row, request, weights), request.min_p};
  return Pick(shared, row, weights, filter, request.uniform);
}

}  // namespace tandem::cuda
