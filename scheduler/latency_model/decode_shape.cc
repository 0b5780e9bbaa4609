#include "scheduler/latency_model/decode_shape.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "scheduler/latency_model/fit_units.h"

namespace tandem {
namespace {

// The number of latest steps on which the old and the new costs are compared: those of several
// outputs, with batches of several sizes.
constexpr size_t kRemembered = 128;
constexpr size_t kLeastNew = 32;
// New costs replace the old ones only when their error is less than this share of the old error.
constexpr double kLeastGain = 0.9;

}  // namespace

DecodeShape::DecodeShape(const StepModel& given) : given_(given.coefficients().beta) {
  for (const int32_t sequences : {1, 2, 4, 8, 16}) {
    for (const int64_t context : {64, 512}) {
      const StepFeatures step = {.decode_sequences = sequences,
                                 .decode_context = sequences * context};
      fit_.Observe(Terms(step), given.Step(step).count());
    }
  }
}

NonNegativeFit<3>::Vector DecodeShape::Terms(const StepFeatures& features) const {
  const double most = given_.buckets.empty() ? 0 : given_.buckets.back().base_ms;
  return {most > 0 ? BaseMs(given_, features.decode_sequences) / most : 1.0,
          features.decode_sequences / fit_units::kSequences,
          static_cast<double>(features.decode_context) / fit_units::kContext};
}

void DecodeShape::Observe(const TimedStep& step) {
  fit_.Observe(Terms(step.features), step.ms);
  latest_.push_back(step);
  if (latest_.size() > kRemembered) latest_.pop_front();
  ++new_steps_;
}

void DecodeShape::Slow(double by) {
  fit_.Scale(by);
  for (TimedStep& step : latest_) step.ms *= by;
}

DecodeCost DecodeShape::Fitted(double scale) const {
  const auto [base, sequences, context] = fit_.coefficients();
  DecodeCost cost = given_;
  if (cost.buckets.empty()) cost.buckets = {{.max_sequences = 1}};
  for (DecodeCost::Bucket& bucket : cost.buckets) {
    const StepFeatures largest = {.decode_sequences = bucket.max_sequences};
    bucket.base_ms = scale * base * Terms(largest)[0];
  }
  cost.sequence_ms = scale * sequences / fit_units::kSequences;
  cost.context_token_ms = scale * context / fit_units::kContext;
  return cost;
}

double DecodeShape::TotalMs(const StepModel& model) const {
  double sum = 0;
  for (const TimedStep& step : latest_) sum += model.Step(step.features).count();
  return sum;
}

// The mean relative error of `model` over the latest steps, after it is scaled to their total time:
// only the differences between steps count. `total_ms` is what the model predicts for all of them.
double DecodeShape::ErrorOf(const StepModel& model, double total_ms) const {
  double actual_ms = 0;
  for (const TimedStep& step : latest_) actual_ms += step.ms;
  double sum = 0;
  for (const TimedStep& step : latest_) {
    sum += std::abs(model.Step(step.features).count() / total_ms * actual_ms / step.ms - 1);
  }
  return sum / static_cast<double>(latest_.size());
}

std::optional<DecodeCost> DecodeShape::Better(const StepModel& model) {
  if (new_steps_ < kLeastNew) return std::nullopt;
  new_steps_ = 0;
  const double total_ms = TotalMs(model);
  StepCoefficients coefficients = model.coefficients();
  coefficients.beta = Fitted(1);
  const auto fitted = StepModel::Create(coefficients);
  if (!fitted.ok()) return std::nullopt;  // times so extreme that the fit overflowed
  const double fitted_ms = TotalMs(*fitted);
  if (!(total_ms > 0) || !(fitted_ms > 0)) return std::nullopt;
  if (ErrorOf(*fitted, fitted_ms) >= kLeastGain * ErrorOf(model, total_ms)) return std::nullopt;
  return Fitted(total_ms / fitted_ms);
}

}  // namespace tandem
