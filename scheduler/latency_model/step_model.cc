#include "scheduler/latency_model/step_model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

struct NamedCost {
  std::string_view name;
  double ms = 0;
};

absl::Status CheckCosts(std::initializer_list<NamedCost> costs) {
  for (const NamedCost& cost : costs) {
    if (!std::isfinite(cost.ms) || cost.ms < 0) {
      return InvalidArgument("{} is {} ms: a cost is finite and not negative", cost.name, cost.ms);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBuckets(const std::vector<DecodeCost::Bucket>& buckets) {
  for (size_t i = 0; i < buckets.size(); ++i) {
    RETURN_IF_ERROR(CheckCosts({{"beta.b0", buckets[i].base_ms}}));
    const int32_t before = i == 0 ? 0 : buckets[i - 1].max_sequences;
    if (buckets[i].max_sequences <= before) {
      return InvalidArgument("a bucket of beta ends at {} sequences after {}: ends must rise",
                             buckets[i].max_sequences, before);
    }
    if (i > 0 && buckets[i].base_ms < buckets[i - 1].base_ms) {
      return InvalidArgument("beta.b0 falls from {} to {} ms at {} sequences: it must not fall",
                             buckets[i - 1].base_ms, buckets[i].base_ms, buckets[i].max_sequences);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKnee(const std::optional<Knee>& knee) {
  if (!knee || (knee->low >= 1 && knee->low <= knee->tokens && knee->tokens <= knee->high)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "batch_thresh is {} in [{}, {}]: it must be at least 1 and in its interval", knee->tokens,
      knee->low, knee->high);
}

}  // namespace

double BaseMs(const DecodeCost& beta, double sequences) {
  double base = 0;
  for (const DecodeCost::Bucket& bucket : beta.buckets) {
    base = bucket.base_ms;
    if (sequences <= bucket.max_sequences) break;
  }
  return base;
}

absl::StatusOr<StepModel> StepModel::Create(StepCoefficients coefficients) {
  const PrefillCost& alpha = coefficients.alpha;
  const DecodeCost& beta = coefficients.beta;
  RETURN_IF_ERROR(CheckCosts({{"alpha.floor", alpha.floor_ms},
                              {"alpha.a0", alpha.base_ms},
                              {"alpha.a1", alpha.token_ms},
                              {"alpha.a2", alpha.pair_ms},
                              {"beta.b1", beta.sequence_ms},
                              {"beta.b2", beta.context_token_ms}}));
  RETURN_IF_ERROR(CheckBuckets(beta.buckets));
  RETURN_IF_ERROR(CheckKnee(coefficients.batch_thresh));
  StepModel model;
  ASSIGN_OR_RETURN(
      model.interference_,
      InterferenceTable::Create(coefficients.gamma, {.token_ms = alpha.token_ms,
                                                     .pair_ms = alpha.pair_ms,
                                                     .context_token_ms = beta.context_token_ms}));
  model.coefficients_ = std::move(coefficients);
  return model;
}

double StepModel::PrefillMs(double tokens, double pairs) const {
  if (tokens <= 0) return 0;
  const PrefillCost& alpha = coefficients_.alpha;
  return std::max(alpha.floor_ms, alpha.base_ms + alpha.token_ms * tokens) + alpha.pair_ms * pairs;
}

double StepModel::DecodeMs(double sequences, double context) const {
  if (sequences <= 0) return 0;
  const DecodeCost& beta = coefficients_.beta;
  return BaseMs(beta, sequences) + beta.sequence_ms * sequences + beta.context_token_ms * context;
}

double StepModel::StepMs(double tokens, double pairs, double sequences, double context) const {
  const double prefill = PrefillMs(tokens, pairs);
  const double decode = DecodeMs(sequences, context);
  if (tokens <= 0) return decode;
  if (sequences <= 0) return prefill;
  const PrefillCost& alpha = coefficients_.alpha;
  const double added = interference_.empty() ? alpha.token_ms * tokens
                                             : interference_.AddedMs(tokens, sequences, context);
  return std::max(prefill, decode + added + alpha.pair_ms * pairs);
}

ModelTime StepModel::AddedPrefill(int32_t begin, int32_t end) const {
  const PrefillCost& alpha = coefficients_.alpha;
  return ModelTime(alpha.token_ms * (end - begin) +
                   alpha.pair_ms * static_cast<double>(CausalPairs(begin, end)));
}

double StepModel::GammaMs(int32_t tokens, int32_t sequences, int64_t context) const {
  const auto c = static_cast<double>(context);
  const auto pairs = static_cast<double>(CausalPairs(0, tokens));
  return (StepMs(tokens, pairs, sequences, c) - StepMs(0, 0, sequences, c)) / tokens;
}

}  // namespace tandem
