#include "scheduler/latency_model.h"

#include <algorithm>

namespace tandem {
namespace {

// Prefills to be seen before their cost is known.
constexpr int64_t kMinPrefillSteps = 8;

// Units in which the coefficients come out alike: times in ms; tokens, pairs, sequences and tokens
// of context by what takes about a millisecond on some machine.
constexpr double kTokens = 1e2;
constexpr double kPairs = 1e5;
constexpr double kSequences = 1e1;
constexpr double kContext = 1e4;
constexpr double kBlocks = 1e1;

double Pairs(int32_t begin, int32_t end) {
  const auto triangle = [](double n) { return n * (n + 1.0) / 2.0; };
  return triangle(end) - triangle(begin);
}

NonNegativeFit<5>::Vector Terms(const StepFeatures& features) {
  return {1.0, features.prefill_tokens / kTokens,
          static_cast<double>(features.prefill_pairs) / kPairs,
          features.decode_sequences / kSequences,
          static_cast<double>(features.decode_context) / kContext};
}

Duration FromMilliseconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(value));
}

}  // namespace

void LatencyModel::ObserveStep(const StepFeatures& features, Duration took) {
  steps_.Observe(Terms(features), ToMilliseconds(took));
  if (features.prefill_tokens > 0) ++prefill_steps_;
}

void LatencyModel::ObserveCopy(int32_t blocks, Duration took) {
  if (blocks > 0) copies_.Observe({1.0, blocks / kBlocks}, ToMilliseconds(took));
}

std::optional<Duration> LatencyModel::Prefill(int32_t begin, int32_t end) const {
  if (prefill_steps_ < kMinPrefillSteps) return std::nullopt;
  return FromMilliseconds(
      steps_.Predict({0.0, (end - begin) / kTokens, Pairs(begin, end) / kPairs, 0.0, 0.0}));
}

std::optional<Duration> LatencyModel::Copy(int32_t blocks) const {
  if (copies_.seen() == 0) return std::nullopt;
  return FromMilliseconds(copies_.Predict({1.0, blocks / kBlocks}));
}

std::optional<Duration> LatencyModel::Step(const StepFeatures& features) const {
  if (steps_.seen() == 0) return std::nullopt;
  return FromMilliseconds(steps_.Predict(Terms(features)));
}

}  // namespace tandem
