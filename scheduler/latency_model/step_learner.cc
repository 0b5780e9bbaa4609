#include "scheduler/latency_model/step_learner.h"

#include <chrono>
#include <utility>

#include "scheduler/latency_model/fit_units.h"

namespace tandem {
namespace {

// The number of steps with prefills to observe before their cost is known.
constexpr int64_t kMinPrefillSteps = 8;

// The unit in which a fit counts the blocks of a copy, so that its coefficients are of one order of
// magnitude.
constexpr double kBlocks = 1e1;

NonNegativeFit<5>::Vector Terms(const StepFeatures& features) {
  return {1.0, features.prefill_tokens / fit_units::kTokens,
          static_cast<double>(features.prefill_pairs) / fit_units::kPairs,
          features.decode_sequences / fit_units::kSequences,
          static_cast<double>(features.decode_context) / fit_units::kContext};
}

Duration ToDuration(ModelTime time) { return std::chrono::duration_cast<Duration>(time); }

}  // namespace

void StepLearner::ObserveStep(const StepFeatures& features, Duration took) {
  steps_.Observe(Terms(features), ToMilliseconds(took));
  if (features.prefill_tokens > 0) ++prefill_steps_;
}

void StepLearner::ObserveCopy(int32_t blocks, Duration took) {
  if (blocks > 0) copies_.Observe({1.0, blocks / kBlocks}, ToMilliseconds(took));
}

std::optional<Duration> StepLearner::Prefill(int32_t begin, int32_t end) const {
  const std::optional<StepModel> model = steps();
  if (!model || prefill_steps_ < kMinPrefillSteps) return std::nullopt;
  return ToDuration(model->AddedPrefill(begin, end));
}

std::optional<Duration> StepLearner::Copy(int32_t blocks) const {
  if (copies_.seen() == 0) return std::nullopt;
  return ToDuration(ModelTime(copies_.Predict({1.0, blocks / kBlocks})));
}

std::optional<Duration> StepLearner::Step(const StepFeatures& features) const {
  const std::optional<StepModel> model = steps();
  if (!model) return std::nullopt;
  return ToDuration(model->Step(features));
}

std::optional<StepModel> StepLearner::steps() const {
  if (steps_.seen() == 0) return std::nullopt;
  const auto& [base, tokens, pairs, sequences, context] = steps_.coefficients();
  StepCoefficients coefficients;
  coefficients.alpha = {.floor_ms = 0,
                        .base_ms = base,
                        .token_ms = tokens / fit_units::kTokens,
                        .pair_ms = pairs / fit_units::kPairs};
  coefficients.beta = {.buckets = {{.max_sequences = 1, .base_ms = base}},
                       .sequence_ms = sequences / fit_units::kSequences,
                       .context_token_ms = context / fit_units::kContext};
  absl::StatusOr<StepModel> model = StepModel::Create(std::move(coefficients));
  if (!model.ok()) return std::nullopt;  // times so extreme that the fit overflowed
  return *std::move(model);
}

}  // namespace tandem
