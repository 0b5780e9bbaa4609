#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/sample_row.cuh"

// Where a row is cut: the token at which a number of tokens, or a mass, is reached in the order of
// ranks. A histogram over buckets of scores says in which bucket that is; its members are listed
// and ranked, after a radix selection has made them few where they are many. Nothing is sorted. All
// threads of the block call these together, with the same arguments.

namespace tandem::cuda {

inline constexpr int kMaxSampleThreads = 512;
inline constexpr int kBins = Weights::kBuckets;

struct Histogram {
  uint32_t tokens[kBins];
  uint32_t mass_low[kBins];
  uint32_t mass_high[kBins];

  // Sets all bins to 0, each thread some of them; the caller adds a barrier.
  __device__ __forceinline__ void Clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += static_cast<int>(blockDim.x)) {
      tokens[i] = mass_low[i] = mass_high[i] = 0;
    }
  }
  // Adds a token. The 64-bit sum is made of two atomics of 32 bits, at which shared memory is
  // quick; the second is rarely needed.
  __device__ __forceinline__ void Add(int bin, uint64_t mass) {
    atomicAdd(&tokens[bin], 1u);
    const auto low = static_cast<uint32_t>(mass);
    if (mass == 0) return;
    const uint32_t before = atomicAdd(&mass_low[bin], low);
    const uint32_t carry = before + low < before ? 1 : 0;
    const uint32_t high = static_cast<uint32_t>(mass >> 32) + carry;
    if (high != 0) atomicAdd(&mass_high[bin], high);
  }
  __device__ __forceinline__ uint64_t Mass(int bin) const {
    return uint64_t{mass_high[bin]} << 32 | mass_low[bin];
  }
};

// What is added up until a cut's limit is reached.
enum class Measure : uint8_t { kTokens, kMass };

// A set of tokens with neighbouring ranks, in which a cut lies.
struct CutRange {
  int32_t bin;           // its bin of the last histogram
  uint32_t tokens;       // in the range
  uint64_t mass;         // of the range
  uint64_t mass_before;  // of all tokens that rank before the range
  uint64_t left;         // what the cut still has to reach inside it, at least 1
};

// The last token that is kept.
struct Cut {
  uint64_t last;  // its rank
  uint64_t mass;  // of all tokens that are kept
};

struct CutWorkspace {
  static constexpr int kMembers = 1024;

  Histogram buckets;
  Histogram digits;
  uint64_t member_ranks[kMembers];
  uint64_t member_masses[kMembers];
  uint64_t of_warp[kMaxSampleThreads / 32];
  uint32_t num_members;
  CutRange range;
  Cut cut;
};

// The sum of x over the threads before this one; `total` becomes the sum over all.
__device__ __forceinline__ uint64_t SumBefore(CutWorkspace& shared, uint64_t x, uint64_t& total) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  uint64_t inclusive = x;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t below = __shfl_up_sync(0xffffffffu, inclusive, distance);
    if (lane >= distance) inclusive += below;
  }
  __syncthreads();  // the last reader of of_warp is done
  if (lane == 31) shared.of_warp[warp] = inclusive;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) {
    if (w == warp) before = total;
    total += shared.of_warp[w];
  }
  return before + inclusive - x;
}

// The bin of a histogram in which `limit` is reached, counted from the first; limit is at least 1
// and at most the sum over all bins. mass_before is of the histogram alone.
__device__ inline CutRange FindBin(CutWorkspace& shared, const Histogram& histogram,
                                   Measure measure, uint64_t limit) {
  const int per_thread = kBins / static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x) * per_thread;
  uint64_t own_tokens = 0;
  uint64_t own_mass = 0;
  for (int bin = first; bin < first + per_thread; ++bin) {
    own_tokens += histogram.tokens[bin];
    own_mass += histogram.Mass(bin);
  }
  uint64_t total;
  uint64_t tokens = SumBefore(shared, own_tokens, total);
  uint64_t mass = SumBefore(shared, own_mass, total);
  for (int bin = first; bin < first + per_thread; ++bin) {
    const uint64_t before = measure == Measure::kTokens ? tokens : mass;
    const uint64_t inside =
        measure == Measure::kTokens ? histogram.tokens[bin] : histogram.Mass(bin);
    if (before < limit && limit <= before + inside) {
      shared.range = {bin, histogram.tokens[bin], histogram.Mass(bin), mass, limit - before};
    }
    tokens += histogram.tokens[bin];
    mass += histogram.Mass(bin);
  }
  __syncthreads();
  return shared.range;
}

// The mass of all tokens of a row.
__device__ inline uint64_t MassOfRow(CutWorkspace& shared, const ScoredRow& row,
                                     const Weights& weights) {
  uint64_t own = 0;
  ForEachToken(row, WholeRow(row),
               [&](int32_t, float, float score) { own += weights.MassOf(score); });
  uint64_t total;
  SumBefore(shared, own, total);
  return total;
}

// Fills the histogram of buckets; returns the mass of all tokens. At low temperatures most tokens
// are in the last bucket: each thread counts its own first, or they would queue for one counter.
__device__ inline uint64_t FillBuckets(CutWorkspace& shared, const ScoredRow& row,
                                       const Weights& weights) {
  constexpr int kLastBucket = Weights::kBuckets - 1;
  shared.buckets.Clear();
  __syncthreads();
  uint64_t own = 0;
  uint32_t own_in_last = 0;
  ForEachToken(row, WholeRow(row), [&](int32_t, float, float score) {
    const int bucket = weights.BucketOf(score);
    if (bucket == kLastBucket) {
      ++own_in_last;
      return;
    }
    const uint64_t mass = weights.MassOf(score);
    own += mass;
    shared.buckets.Add(bucket, mass);
  });
  atomicAdd(&shared.buckets.tokens[kLastBucket], own_in_last);
  uint64_t total;
  SumBefore(shared, own, total);  // its barriers also close the histogram
  return total;
}

// The members of one bucket whose ranks begin with the digits chosen so far.
struct Members {
  static constexpr int kDigitBits = 10;
  static_assert(kBins == 1 << kDigitBits);

  int bucket;
  uint64_t prefix;
  int shift;  // bits of a rank behind the prefix

  __device__ __forceinline__ bool Contain(const Weights& weights, float score,
                                          uint64_t rank) const {
    return weights.BucketOf(score) == bucket && (shift == 64 || rank >> shift == prefix);
  }
};

// Narrows a range to those of its members whose ranks have the next digit of the cut's rank.
__device__ inline CutRange NarrowByDigit(CutWorkspace& shared, const ScoredRow& row,
                                         const Weights& weights, const CutRange& range,
                                         Measure measure, Members& members) {
  const int shift = members.shift - Members::kDigitBits;
  shared.digits.Clear();
  __syncthreads();
  ForEachToken(row, WholeRow(row), [&](int32_t id, float, float score) {
    const uint64_t rank = RankOf(score, id);
    if (!members.Contain(weights, score, rank)) return;
    shared.digits.Add(static_cast<int>(rank >> shift & (kBins - 1)), weights.MassOf(score));
  });
  __syncthreads();
  CutRange narrowed = FindBin(shared, shared.digits, measure, range.left);
  narrowed.mass_before += range.mass_before;
  members.prefix = members.prefix << Members::kDigitBits | static_cast<uint64_t>(narrowed.bin);
  members.shift = shift;
  return narrowed;
}

__device__ inline void ListMembers(CutWorkspace& shared, const ScoredRow& row,
                                   const Weights& weights, const Members& members) {
  if (threadIdx.x == 0) shared.num_members = 0;
  __syncthreads();
  ForEachToken(row, WholeRow(row), [&](int32_t id, float, float score) {
    const uint64_t rank = RankOf(score, id);
    if (!members.Contain(weights, score, rank)) return;
    const uint32_t at = atomicAdd(&shared.num_members, 1u);
    shared.member_ranks[at] = rank;
    shared.member_masses[at] = weights.MassOf(score);
  });
  __syncthreads();
}

// Finds the cut inside a bucket that FindBin has returned.
__device__ inline Cut FindCut(CutWorkspace& shared, const ScoredRow& row, const Weights& weights,
                              CutRange range, Measure measure) {
  Members members = {range.bin, 0, 64};
  while (range.tokens > CutWorkspace::kMembers) {
    range = NarrowByDigit(shared, row, weights, range, measure, members);
  }
  ListMembers(shared, row, weights, members);
  const uint32_t count = shared.num_members;
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    uint64_t tokens = 0;
    uint64_t mass = 0;
    for (uint32_t j = 0; j < count; ++j) {
      if (shared.member_ranks[j] >= shared.member_ranks[i]) continue;
      ++tokens;
      mass += shared.member_masses[j];
    }
    const uint64_t before = measure == Measure::kTokens ? tokens : mass;
    const uint64_t inside = measure == Measure::kTokens ? 1 : shared.member_masses[i];
    if (before < range.left && range.left <= before + inside) {
      shared.cut = {shared.member_ranks[i], range.mass_before + mass + shared.member_masses[i]};
    }
  }
  __syncthreads();
  return shared.cut;
}

}  // namespace tandem::cuda
