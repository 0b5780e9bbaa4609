#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/sample_errors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// The largest of x, or NaN when one of its elements is NaN or infinite.
float HighestIfFinite(const float* HWY_RESTRICT x, size_t n) {
  const F32Tag d;
  F32 highest = hn::Set(d, x[0]);
  F32 poison = hn::Zero(d);  // 0 * x is NaN for an x that is not finite
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 v = hn::LoadU(d, x + i);
    highest = hn::Max(highest, v);
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  }
  for (; i < n; ++i) {
    const F32 v = hn::Set(d, x[i]);
    highest = hn::Max(highest, v);
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  }
  return hn::GetLane(hn::MaxOfLanes(d, highest)) + hn::GetLane(hn::SumOfLanes(d, poison));
}

size_t FindFirst(const float* HWY_RESTRICT x, size_t n, float value) {
  const F32Tag d;
  const F32 wanted = hn::Set(d, value);
  size_t i = 0;
  while (i + kLanes <= n && hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + i), wanted))) i += kLanes;
  while (i < n && x[i] != value) ++i;
  return i;
}

// weights = e^((x - highest) / temperature); 1 exactly at the highest.
void ComputeWeights(const float* HWY_RESTRICT x, size_t n, float highest, float temperature,
                    float* HWY_RESTRICT weights) {
  const F32Tag d;
  const F32 top = hn::Set(d, highest);
  const F32 divisor = hn::Set(d, temperature);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(Exp(hn::Div(hn::Sub(hn::LoadU(d, x + i), top), divisor)), d, weights + i);
  }
  for (; i < n; ++i) {
    weights[i] = hn::GetLane(Exp(hn::Div(hn::Sub(hn::Set(d, x[i]), top), divisor)));
  }
}

double Sum(const float* HWY_RESTRICT x, size_t n) {
  return SumInOrder(x, n, [](F32 sum, F32 v) HWY_ATTR { return hn::Add(sum, v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {
namespace {

HWY_EXPORT(HighestIfFinite);
HWY_EXPORT(FindFirst);
HWY_EXPORT(ComputeWeights);
HWY_EXPORT(Sum);

// Weights are summed in pieces of this length, in float within a piece and in double across pieces.
constexpr size_t kPiece = 1024;
// The histogram of scores has buckets of 1/32 nat over 32 nats, the last for everything below.
constexpr size_t kBuckets = 1024;
constexpr float kBucketsPerNat = 32;

// A token in the order of ranks: by falling score, then by rising id.
struct Ranked {
  float score;
  int32_t id;
};

bool RanksBefore(const Ranked& a, const Ranked& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// Scores are clamped to +-kLargest, and tokens that must not be sampled have -kLargest.
constexpr float kLargest = std::numeric_limits<float>::max();

// The result of sampling one row.
enum class RowOutcome : uint8_t { kSampled, kNotFinite, kAllExcluded };

// Samples the rows that one thread is given; its memory is kept from call to call.
class RowSampler {
 public:
  // Samples one row; leaves its logits unchanged.
  RowOutcome Sample(std::span<const float> logits, const SampleRow& row, SampledToken& out) {
    const float highest = HWY_DYNAMIC_DISPATCH(HighestIfFinite)(logits.data(), logits.size());
    if (std::isnan(highest)) return RowOutcome::kNotFinite;
    scores_ = logits;
    highest_ = highest;
    if (row.given_token >= 0) {
      out.token_id = row.given_token;
    } else {
      if (!row.biases.empty() || HasPenalties(row) || HasExclusions(row)) Rescore(logits, row);
      if (HasExclusions(row) && highest_ == -kLargest) return RowOutcome::kAllExcluded;
      out.token_id = static_cast<int32_t>(row.temperature == 0 ? Highest() : Draw(row));
    }
    out.logprob = 0;
    out.top.clear();
    if (row.num_logprobs >= 0) ReportLogprobs(logits, highest, row, out);
    return RowOutcome::kSampled;
  }

 private:
  size_t Highest() const {
    return HWY_DYNAMIC_DISPATCH(FindFirst)(scores_.data(), scores_.size(), highest_);
  }

  void Rescore(std::span<const float> logits, const SampleRow& row) {
    rescored_.assign(logits.begin(), logits.end());
    for (const TokenBias& entry : row.biases) rescored_[entry.token_id] += entry.bias;
    if (HasPenalties(row)) Penalize(row);
    if (HasExclusions(row)) Exclude(row);
    scores_ = rescored_;
    highest_ = HWY_DYNAMIC_DISPATCH(HighestIfFinite)(scores_.data(), scores_.size());
  }

  void Exclude(const SampleRow& row) {
    if (!row.allowed_ids.empty()) {
      allowed_.clear();
      for (int32_t id : row.allowed_ids) allowed_.push_back(rescored_[id]);
      std::fill(rescored_.begin(), rescored_.end(), -kLargest);
      for (size_t i = 0; i < allowed_.size(); ++i) rescored_[row.allowed_ids[i]] = allowed_[i];
    }
    for (int32_t id : row.excluded_ids) rescored_[id] = -kLargest;
  }

  void Penalize(const SampleRow& row) {
    counts_.resize(std::max(counts_.size(), rescored_.size()));
    touched_.clear();
    constexpr int32_t kPromptOnly = -1;
    for (int32_t id : row.output_ids) {
      if (counts_[id]++ == 0) touched_.push_back(id);
    }
    for (int32_t id : row.prompt_ids) {
      if (counts_[id] != 0) continue;
      counts_[id] = kPromptOnly;
      touched_.push_back(id);
    }
    for (int32_t id : touched_) {
      float& score = rescored_[id];
      score = score > 0 ? score / row.repetition_penalty : score * row.repetition_penalty;
      if (counts_[id] > 0) {
        score -= static_cast<float>(counts_[id]) * row.frequency_penalty + row.presence_penalty;
      }
      score = std::clamp(score, -kLargest, kLargest);
      counts_[id] = 0;
    }
  }

  size_t Draw(const SampleRow& row) {
    Weigh(scores_, highest_, row.temperature);
    const bool top_k = row.top_k > 0 && static_cast<size_t>(row.top_k) < scores_.size();
    if (top_k || row.top_p < 1 || row.min_p > 0) {
      Ranked last = {-std::numeric_limits<float>::infinity(), 0};
      if (top_k || row.top_p < 1) last = LastKept(row, top_k);
      for (size_t i = 0; i < weights_.size(); ++i) {
        const Ranked token = {scores_[i], static_cast<int32_t>(i)};
        if (RanksBefore(last, token) || weights_[i] < row.min_p) weights_[i] = 0;
      }
    }
    return Pick(UniformAt(row.seed, static_cast<uint64_t>(row.position)));
  }

  void Weigh(std::span<const float> scores, float highest, float temperature) {
    weights_.resize(scores.size());
    HWY_DYNAMIC_DISPATCH(ComputeWeights)
    (scores.data(), scores.size(), highest, temperature, weights_.data());
  }

  // The last token in rank that both top_k and top_p keep. Counts and masses per bucket of scores
  // tell in which bucket the cut lies, so that only this one is sorted.
  Ranked LastKept(const SampleRow& row, bool top_k) {
    FillBuckets(row.temperature);
    Ranked last = {-std::numeric_limits<float>::infinity(), 0};
    double mass = 0;
    if (top_k) {
      int64_t left = row.top_k;
      size_t bucket = 0;
      for (; counts_of_[bucket] < left; ++bucket) {
        left -= counts_of_[bucket];
        mass += masses_of_[bucket];
      }
      SortBucket(bucket, row.temperature, static_cast<size_t>(left));
      for (int64_t i = 0; i < left; ++i) mass += weights_[members_[i].id];
      last = members_[left - 1];
    } else {
      for (double bucket_mass : masses_of_) mass += bucket_mass;
    }
    if (row.top_p >= 1) return last;

    double left = row.top_p * mass;
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && masses_of_[bucket] < left) left -= masses_of_[bucket++];
    while (counts_of_[bucket] == 0) --bucket;  // rounding may have gone past the last token
    SortBucket(bucket, row.temperature, static_cast<size_t>(counts_of_[bucket]));
    size_t member = 0;
    while (member + 1 < members_.size() && weights_[members_[member].id] < left) {
      left -= weights_[members_[member++].id];
    }
    return top_k && RanksBefore(last, members_[member]) ? last : members_[member];
  }

  size_t BucketOf(float score, float temperature) const {
    const float place = (highest_ - score) / temperature * kBucketsPerNat;
    return place < kBuckets - 1 ? static_cast<size_t>(place) : kBuckets - 1;
  }

  void FillBuckets(float temperature) {
    counts_of_.fill(0);
    masses_of_.fill(0);
    for (size_t i = 0; i < scores_.size(); ++i) {
      const size_t bucket = BucketOf(scores_[i], temperature);
      ++counts_of_[bucket];
      masses_of_[bucket] += weights_[i];
    }
  }

  // Collects a bucket's tokens into members_; the first `count` in rank come first, in order.
  void SortBucket(size_t bucket, float temperature, size_t count) {
    members_.clear();
    for (size_t i = 0; i < scores_.size(); ++i) {
      if (BucketOf(scores_[i], temperature) != bucket) continue;
      members_.push_back({scores_[i], static_cast<int32_t>(i)});
    }
    std::partial_sort(members_.begin(), members_.begin() + static_cast<int64_t>(count),
                      members_.end(), RanksBefore);
  }

  double SumPieces() {
    double total = 0;
    pieces_.clear();
    for (size_t i = 0; i < weights_.size(); i += kPiece) {
      const size_t n = std::min(kPiece, weights_.size() - i);
      pieces_.push_back(HWY_DYNAMIC_DISPATCH(Sum)(weights_.data() + i, n));
      total += pieces_.back();
    }
    return total;
  }

  // The token where the running sum of weights, in the order of ids, exceeds `uniform` of their
  // total.
  size_t Pick(double uniform) {
    double left = uniform * SumPieces();
    size_t piece = 0;
    while (piece + 1 < pieces_.size() && pieces_[piece] <= left) left -= pieces_[piece++];
    for (size_t i = piece * kPiece; i < std::min(weights_.size(), (piece + 1) * kPiece); ++i) {
      left -= weights_[i];
      if (left < 0) return i;
    }
    // Reached only by rounding of the sums: the last token that has a weight, which may lie pieces
    // before.
    size_t last = std::min(weights_.size(), (piece + 1) * kPiece) - 1;
    while (weights_[last] == 0) --last;
    return last;
  }

  void ReportLogprobs(std::span<const float> logits, float highest, const SampleRow& row,
                      SampledToken& out) {
    Weigh(logits, highest, 1);
    const double log_total = highest + std::log(SumPieces());
    const auto logprob = [&](float logit) { return static_cast<float>(logit - log_total); };
    out.logprob = logprob(logits[out.token_id]);
    members_.clear();
    const auto wanted = static_cast<size_t>(row.num_logprobs);
    for (size_t i = 0; i < logits.size() && wanted > 0; ++i) {
      const Ranked token = {logits[i], static_cast<int32_t>(i)};
      if (members_.size() == wanted) {  // a heap with the lowest-ranked token on top
        if (!RanksBefore(token, members_.front())) continue;
        std::pop_heap(members_.begin(), members_.end(), RanksBefore);
        members_.pop_back();
      }
      members_.push_back(token);
      std::push_heap(members_.begin(), members_.end(), RanksBefore);
    }
    std::sort_heap(members_.begin(), members_.end(), RanksBefore);
    for (const Ranked& token : members_) out.top.push_back({token.id, logprob(token.score)});
  }

  std::span<const float> scores_;  // logits after biases, penalties and exclusions
  float highest_ = 0;              // of scores_
  std::vector<float> rescored_;
  std::vector<float> allowed_;  // scores of the tokens that may be sampled
  std::vector<float> weights_;
  std::vector<double> pieces_;
  std::vector<int32_t> counts_;  // by token; all 0 between rows
  std::vector<int32_t> touched_;
  std::array<int64_t, kBuckets> counts_of_;
  std::array<double, kBuckets> masses_of_;
  std::vector<Ranked> members_;
};

}  // namespace

absl::Status CpuOps::DoSample(Stream&, const SampleArgs& args) {
  const auto vocab = static_cast<size_t>(args.logits.shape[1]);
  std::vector<RowOutcome> outcomes(args.rows.size());
  pool_.ParallelFor(static_cast<int64_t>(args.rows.size()), [&](int64_t index, int) {
    thread_local RowSampler sampler;
    const auto row = static_cast<size_t>(index);
    const std::span<const float> logits(args.logits.Row<const float>(index), vocab);
    outcomes[row] = sampler.Sample(logits, args.rows[row], args.out[row]);
  });
  for (size_t row = 0; row < outcomes.size(); ++row) {
    switch (outcomes[row]) {
      case RowOutcome::kSampled:
        break;
      case RowOutcome::kNotFinite:
        return OverflowedRow(row);
      case RowOutcome::kAllExcluded:
        return AllExcluded(row);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
