#include "router/output_length/length_forecasts.h"

#include <cmath>
#include <utility>

#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<LengthForecasts>> LengthForecasts::New(std::string_view predictor) {
  ASSIGN_OR_RETURN(std::unique_ptr<OutputLengthPredictor> chosen,
                   NewOutputLengthPredictor(predictor));
  return std::make_unique<LengthForecasts>(predictor, std::move(chosen));
}

LengthForecasts::LengthForecasts(std::string_view name,
                                 std::unique_ptr<OutputLengthPredictor> predictor)
    : name_(name), predictor_(std::move(predictor)) {}

void LengthForecasts::OnEnded(const LengthQuery& request, const LengthForecast& forecast,
                              int32_t output_tokens, FinishKind kind) {
  predictor_->Observe(request, output_tokens, kind);
  const int32_t tenants = predictor_->tenants();
  absl::MutexLock lock(&mutex_);
  if (kind == FinishKind::kStopped) {
    counts_.set_stopped(counts_.stopped() + 1);
  } else {
    counts_.set_capped(counts_.capped() + 1);
  }
  counts_.set_tenants(tenants);
  const Outcome outcome = {forecast, output_tokens};
  if (outcomes_.size() < kOutcomes) {
    outcomes_.push_back(outcome);
  } else {
    outcomes_[num_outcomes_ % kOutcomes] = outcome;
  }
  ++num_outcomes_;
}

void LengthForecasts::OnInterrupted(const LengthQuery& request, int32_t output_tokens) {
  predictor_->Observe(request, output_tokens, FinishKind::kCapped);
  const int32_t tenants = predictor_->tenants();
  absl::MutexLock lock(&mutex_);
  counts_.set_interrupted(counts_.interrupted() + 1);
  counts_.set_tenants(tenants);
}

v1::OutputLengthUse LengthForecasts::Use() const {
  absl::MutexLock lock(&mutex_);
  v1::OutputLengthUse use = counts_;
  use.set_predictor(name_);
  if (outcomes_.empty()) return use;
  double tokens = 0;
  double predicted = 0;
  double error = 0;
  double within = 0;
  for (const Outcome& one : outcomes_) {
    tokens += one.tokens;
    predicted += one.forecast.mean;
    error += std::abs(one.tokens - one.forecast.p50);
    // A forecast need not be a whole number of tokens.
    if (one.tokens <= std::ceil(one.forecast.p90)) ++within;
  }
  const auto count = static_cast<double>(outcomes_.size());
  use.set_mean_tokens(tokens / count);
  use.set_predicted_tokens(predicted / count);
  use.set_error_tokens(error / count);
  use.set_within_p90(within / count);
  return use;
}

}  // namespace tandem
