#include "server/eval/prediction_change.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/status.h"

namespace tandem {
namespace {

// The least probability that the rest of a vocabulary counts as. Log-probabilities are floats, so
// the rest is known to about a millionth; this keeps rounding from looking like a divergence.
constexpr double kLeastRest = 1e-6;

std::optional<double> LogprobOf(const v1::TokenLogprobs& known, int32_t token_id) {
  if (known.sampled().token_id() == token_id) return known.sampled().logprob();
  for (const v1::TokenLogprob& one : known.top()) {
    if (one.token_id() == token_id) return one.logprob();
  }
  return std::nullopt;
}

}  // namespace

bool AreMostProbable(std::span<const v1::TokenLogprobs> tokens) {
  return std::ranges::all_of(tokens, [](const v1::TokenLogprobs& one) {
    return !one.top().empty() && one.top(0).token_id() == one.sampled().token_id();
  });
}

double KlLowerBound(const v1::TokenLogprobs& baseline, const v1::TokenLogprobs& tested) {
  double kl = 0;
  double rest = 1;
  double tested_rest = 1;
  for (const v1::TokenLogprob& one : baseline.top()) {
    const std::optional<double> other = LogprobOf(tested, one.token_id());
    if (!other) continue;
    const double probability = std::exp(double{one.logprob()});
    kl += probability * (one.logprob() - *other);
    rest -= probability;
    tested_rest -= std::exp(*other);
  }
  rest = std::max(rest, kLeastRest);
  kl += rest * std::log(rest / std::max(tested_rest, kLeastRest));
  return std::max(kl, 0.0);  // it is never below 0 but by rounding
}

absl::StatusOr<PredictionChange> ComparePredictions(std::span<const v1::TokenLogprobs> baseline,
                                                    std::span<const v1::TokenLogprobs> tested) {
  if (baseline.empty() || baseline.size() != tested.size()) {
    return Internal("log-probabilities of {} and of {} tokens came, as many of each are needed",
                    baseline.size(), tested.size());
  }
  double baseline_sum = 0;
  double tested_sum = 0;
  double kl = 0;
  int agreeing = 0;
  for (size_t i = 0; i < baseline.size(); ++i) {
    const v1::TokenLogprobs& a = baseline[i];
    const v1::TokenLogprobs& b = tested[i];
    if (a.sampled().token_id() != b.sampled().token_id() || a.top().empty() || b.top().empty()) {
      return Internal("log-probabilities of output token {} are of two tokens, or without others",
                      i);
    }
    baseline_sum += a.sampled().logprob();
    tested_sum += b.sampled().logprob();
    kl += KlLowerBound(a, b);
    if (a.top(0).token_id() == b.top(0).token_id()) ++agreeing;
  }
  const auto count = static_cast<double>(baseline.size());
  return PredictionChange{.baseline_perplexity = std::exp(-baseline_sum / count),
                          .perplexity = std::exp(-tested_sum / count),
                          .top1_agreement = agreeing / count,
                          .kl_nats = kl / count};
}

}  // namespace tandem
