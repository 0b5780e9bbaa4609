#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/launchers.h"
#include "kernels/cuda/numeric.cuh"

// One row of logits as the block that samples it sees it: scores after penalties and exclusions,
// the rank of a token, its weight. Weights are summed as integers, so that sums do not depend on
// their order.

namespace tandem::cuda {

// What a token's entry in ScoredRow::counts says: how often it is in the output, that it is in the
// prompt alone, or, where it is less than that, that it is excluded. Counting an excluded token in
// the output leaves it excluded.
inline constexpr int32_t kPromptOnly = -1;
inline constexpr int32_t kExcluded = INT32_MIN;

struct ScoredRow {
  const float* logits;
  const int32_t* counts;  // null: no penalties and nothing excluded
  int32_t vocab;
  Access access;  // of logits and counts
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;

  __device__ __forceinline__ float Score(float logit, int32_t count) const {
    if (count == 0) return logit;
    if (count < kPromptOnly) return -FLT_MAX;
    float score = logit > 0 ? logit / repetition_penalty : logit * repetition_penalty;
    if (count > 0) score -= static_cast<float>(count) * frequency_penalty + presence_penalty;
    return fminf(fmaxf(score, -FLT_MAX), FLT_MAX);
  }
  __device__ __forceinline__ float ScoreOf(int32_t id) const {
    return Score(logits[id], counts == nullptr ? 0 : counts[id]);
  }
};

// Ids [begin, end), and which of the `threads` threads that share them this one is. begin is a
// multiple of kQuad.
struct TokenRange {
  int32_t begin;
  int32_t end;
  int32_t thread;
  int32_t threads;
};

__device__ __forceinline__ TokenRange WholeRow(const ScoredRow& row) {
  return {0, row.vocab, static_cast<int32_t>(threadIdx.x), static_cast<int32_t>(blockDim.x)};
}

inline constexpr int32_t kQuad = 4;

__device__ __forceinline__ float4 VectorAt(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ __forceinline__ int4 VectorAt(const int32_t* p) {
  return *reinterpret_cast<const int4*>(p);
}

// Loads four elements of a row that ends at `end`, 16 bytes at once where that is possible.
template <class T>
__device__ __forceinline__ void LoadQuad(const T* row, int32_t at, int32_t end, Access access,
                                         T (&quad)[kQuad]) {
  if (access == Access::kVectors && at + kQuad <= end) {
    const auto vector = VectorAt(row + at);
    quad[0] = vector.x, quad[1] = vector.y, quad[2] = vector.z, quad[3] = vector.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kQuad; ++i) quad[i] = at + i < end ? row[at + i] : T{};
}

// Calls visit(id, logit, score) for this thread's share of the range, ids rising. Several loads are
// in flight.
template <class Visit>
__device__ __forceinline__ void ForEachToken(const ScoredRow& row, const TokenRange& range,
                                             const Visit& visit) {
  constexpr int kQuadsInFlight = 4;
  const int32_t step = range.threads * kQuad;
  for (int32_t first = range.begin + range.thread * kQuad; first < range.end;
       first += kQuadsInFlight * step) {
    float logits[kQuadsInFlight][kQuad];
    int32_t counts[kQuadsInFlight][kQuad] = {};
#pragma unroll
    for (int q = 0; q < kQuadsInFlight; ++q) {
      LoadQuad(row.logits, first + q * step, range.end, row.access, logits[q]);
      if (row.counts == nullptr) continue;
      LoadQuad(row.counts, first + q * step, range.end, row.access, counts[q]);
    }
#pragma unroll
    for (int q = 0; q < kQuadsInFlight; ++q) {
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const int32_t id = first + q * step + i;
        if (id < range.end) visit(id, logits[q][i], row.Score(logits[q][i], counts[q][i]));
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

  // The weight of a score; 1 at the highest score.
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

  // The bucket of a score, in steps of 1/32 nat from the highest score down. All scores 32 nats
  // below it or more, where weights have no mass any more, are in the last bucket.
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
