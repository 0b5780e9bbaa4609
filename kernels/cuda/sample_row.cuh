#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// One row of logits as the block that samples it sees it: scores after penalties, the rank of a
// token, its weight. Weights are summed as integers, so that sums do not depend on their order.

namespace tandem::cuda {

// What a token's entry in ScoredRow::counts says: how often it is in the output, or this.
inline constexpr int32_t kPromptOnly = -1;

struct ScoredRow {
  const float* logits;
  const int32_t* counts;  // null: no penalties
  int32_t vocab;
  Access access;  // of logits and counts
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;

  __device__ __forceinline__ float Score(float logit, int32_t count) const {
    if (count == 0) return logit;
    float score = logit > 0 ? logit / repetition_penalty : logit * repetition_penalty;
    if (count > 0) score -= static_cast<float>(count) * frequency_penalty + presence_penalty;
    return fminf(fmaxf(score, -FLT_MAX), FLT_MAX);
  }
  __device__ __forceinline__ float ScoreOf(int32_t id) const {
    return Score(logits[id], counts == nullptr ? 0 : counts[id]);
  }
};

// Ids [begin, end), and which of the `threads` threads that share them this one is. begin is a
// multiple of 4.
struct TokenRange {
  int32_t begin;
  int32_t end;
  int32_t thread;
  int32_t threads;
};

__device__ __forceinline__ TokenRange WholeRow(const ScoredRow& row) {
  return {0, row.vocab, static_cast<int32_t>(threadIdx.x), static_cast<int32_t>(blockDim.x)};
}

// Calls visit(id, logit, score) for this thread's share of the range, ids rising. Logits come 16
// bytes at a time, several of them in flight.
template <class Visit>
__device__ __forceinline__ void ForEachToken(const ScoredRow& row, const TokenRange& range,
                                             const Visit& visit) {
  constexpr int kQuad = 4;
  constexpr int kQuadsInFlight = 4;
  const int32_t step = range.threads * kQuad;
  for (int32_t first = range.begin + range.thread * kQuad; first < range.end;
       first += kQuadsInFlight * step) {
    float logits[kQuadsInFlight][kQuad];
#pragma unroll
    for (int q = 0; q < kQuadsInFlight; ++q) {
      const int32_t at = first + q * step;
      if (row.access == Access::kVectors && at + kQuad <= range.end) {
        const float4 quad = *reinterpret_cast<const float4*>(row.logits + at);
        logits[q][0] = quad.x, logits[q][1] = quad.y, logits[q][2] = quad.z, logits[q][3] = quad.w;
      } else {
#pragma unroll
        for (int i = 0; i < kQuad; ++i) logits[q][i] = at + i < range.end ? row.logits[at + i] : 0;
      }
    }
#pragma unroll
    for (int q = 0; q < kQuadsInFlight; ++q) {
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const int32_t id = first + q * step + i;
        if (id >= range.end) continue;
        const int32_t count = row.counts == nullptr ? 0 : row.counts[id];
        visit(id, logits[q][i], row.Score(logits[q][i], count));
      }
    }
  }
}

// ---- ranks: the token with the highest score has the lowest, equal scores rank by rising id ----

inline constexpr uint64_t kLastRank = ~uint64_t{0};

__device__ __forceinline__ uint64_t RankOf(float score, int32_t id) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // -0 equals 0
  const uint32_t falling = (bits & 0x80000000u) != 0 ? bits : ~bits & 0x7fffffffu;
  return uint64_t{falling} << 32 | static_cast<uint32_t>(id);
}
__device__ __forceinline__ int32_t IdOf(uint64_t rank) {
  return static_cast<int32_t>(rank & 0xffffffffu);
}
__device__ __forceinline__ float ScoreOf(uint64_t rank) {
  const auto falling = static_cast<uint32_t>(rank >> 32);
  return __uint_as_float((falling & 0x80000000u) != 0 ? falling : ~falling & 0x7fffffffu);
}

// ---- weights: e^((score - highest) / temperature) ----

class Weights {
 public:
  // temperature > 0
  __device__ __forceinline__ Weights(float highest, float temperature)
      : highest_(highest),
        log2_scale_(fminf(kLog2OfE / temperature, FLT_MAX)),
        bucket_scale_(fminf(kBucketsPerNat / temperature, FLT_MAX)) {}

  // 1 at the highest score.
  __device__ __forceinline__ float Of(float score) const {
    return ptx::Exp2((score - highest_) * log2_scale_);
  }
  // A weight as an integer; 2^18 of them fit in 64 bits.
  __device__ __forceinline__ static uint64_t Mass(float weight) {
    return static_cast<uint64_t>(weight * kOne);
  }
  __device__ __forceinline__ uint64_t MassOf(float score) const { return Mass(Of(score)); }
  __device__ __forceinline__ static double ToDouble(uint64_t mass) {
    return static_cast<double>(mass) / static_cast<double>(kOne);
  }

  // Scores in steps of 1/32 nat, the highest first; what is 32 nats below it and more, where
  // weights have no mass any more, is the last bucket.
  static constexpr int kBuckets = 1024;
  __device__ __forceinline__ int BucketOf(float score) const {
    const float place = (highest_ - score) * bucket_scale_;
    return place < kBuckets - 1 ? static_cast<int>(place) : kBuckets - 1;
  }

 private:
  static constexpr float kLog2OfE = 1.4426950408889634f;
  static constexpr float kBucketsPerNat = 32;
  static constexpr float kOne = 17592186044416.0f;  // 2^44

  float highest_;
  float log2_scale_;
  float bucket_scale_;
};

}  // namespace tandem::cuda
