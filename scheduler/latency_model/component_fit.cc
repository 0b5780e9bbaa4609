#include "scheduler/latency_model/component_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "scheduler/latency_model/fit_units.h"
#include "scheduler/latency_model/normal_equations.h"

namespace tandem {
namespace {

constexpr size_t kMostBuckets = 10;
constexpr size_t kDecodeTerms = kMostBuckets + 2;
// The least relative error that a model is credited with: below it, a model is as good as any
// measurement, and a perfect fit must not justify any number of terms.
constexpr double kLeastError = 1e-3;

// The Bayesian information criterion (BIC) of a model with `terms` coefficients, where `squares` is
// the sum of its squared relative errors; the lower, the likelier the model.
double Criterion(double squares, size_t samples, size_t terms) {
  const auto n = static_cast<double>(samples);
  const double mean = std::max(squares / n, kLeastError * kLeastError);
  return n * std::log(mean) + static_cast<double>(terms) * std::log(n);
}

template <typename Predict>
double SquaredErrors(std::span<const TimedStep> steps, Predict predict) {
  double squares = 0;
  for (const TimedStep& step : steps) {
    const double error = predict(step.features) / step.ms - 1.0;
    squares += error * error;
  }
  return squares;
}

double PrefillMs(const PrefillCost& cost, const StepFeatures& features) {
  return std::max(cost.floor_ms, cost.base_ms + cost.token_ms * features.prefill_tokens) +
         cost.pair_ms * static_cast<double>(features.prefill_pairs);
}

}  // namespace

PrefillCost FitPrefill(std::span<const TimedStep> steps, int32_t floor_below) {
  NormalEquations<4> equations;
  for (const TimedStep& step : steps) {
    const bool flat = step.features.prefill_tokens < floor_below;
    const double pairs = static_cast<double>(step.features.prefill_pairs) / fit_units::kPairs;
    const double tokens = step.features.prefill_tokens / fit_units::kTokens;
    equations.Add(
        flat ? std::array<double, 4>{1, 0, 0, pairs} : std::array<double, 4>{0, 1, tokens, pairs},
        step.ms, 1.0 / (step.ms * step.ms));
  }
  const auto [floor, base, tokens, pairs] = equations.Solve({});
  return {.floor_ms = floor,
          .base_ms = base,
          .token_ms = tokens / fit_units::kTokens,
          .pair_ms = pairs / fit_units::kPairs};
}

int32_t ChooseFloor(std::span<const TimedStep> steps) {
  std::set<int32_t> sizes;
  for (const TimedStep& step : steps) sizes.insert(step.features.prefill_tokens);
  int32_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](int32_t floor_below, size_t terms) {
    const PrefillCost cost = FitPrefill(steps, floor_below);
    const double squares =
        SquaredErrors(steps, [&cost](const StepFeatures& f) { return PrefillMs(cost, f); });
    const double criterion = Criterion(squares, steps.size(), terms);
    if (criterion >= least) return;
    least = criterion;
    best = floor_below;
  };
  consider(0, 3);
  // A straight line can only be fitted to at least two sizes above the floor.
  int32_t above = static_cast<int32_t>(sizes.size());
  for (const int32_t size : sizes) {
    if (above >= 2 && above < std::ssize(sizes)) consider(size, 5);
    --above;
  }
  return best;
}

DecodeCost FitDecode(std::span<const TimedStep> steps, std::span<const int32_t> bucket_ends) {
  // Each bucket's b0 is the b0 of the bucket before plus a step that is not negative, so that b0
  // never falls.
  NormalEquations<kDecodeTerms> equations;
  for (const TimedStep& step : steps) {
    std::array<double, kDecodeTerms> x{};
    x[0] = 1;
    for (size_t i = 1; i < bucket_ends.size(); ++i) {
      x[i] = step.features.decode_sequences > bucket_ends[i - 1] ? 1 : 0;
    }
    x[kMostBuckets] = step.features.decode_sequences / fit_units::kSequences;
    x[kMostBuckets + 1] = static_cast<double>(step.features.decode_context) / fit_units::kContext;
    equations.Add(x, step.ms, 1.0 / (step.ms * step.ms));
  }
  const auto solution = equations.Solve({});
  DecodeCost cost;
  double base = 0;
  for (size_t i = 0; i < bucket_ends.size(); ++i) {
    base += solution[i];
    cost.buckets.push_back({.max_sequences = bucket_ends[i], .base_ms = base});
  }
  cost.sequence_ms = solution[kMostBuckets] / fit_units::kSequences;
  cost.context_token_ms = solution[kMostBuckets + 1] / fit_units::kContext;
  return cost;
}

std::vector<int32_t> ChooseBuckets(std::span<const TimedStep> steps) {
  int32_t largest = 1;
  for (const TimedStep& step : steps) largest = std::max(largest, step.features.decode_sequences);
  std::vector<std::vector<int32_t>> candidates = {{largest}};
  for (const int32_t factor : {2, 4}) {
    std::vector<int32_t>& ends = candidates.emplace_back();
    for (int32_t end = 1; end < largest && ends.size() + 1 < kMostBuckets; end *= factor) {
      ends.push_back(end);
    }
    ends.push_back(largest);
  }
  std::vector<int32_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (const std::vector<int32_t>& ends : candidates) {
    StepCoefficients coefficients;
    coefficients.beta = FitDecode(steps, ends);
    const auto model = StepModel::Create(coefficients);
    if (!model.ok()) continue;
    const double squares =
        SquaredErrors(steps, [&model](const StepFeatures& f) { return model->Step(f).count(); });
    const double criterion = Criterion(squares, steps.size(), ends.size() + 2);
    if (criterion >= least) continue;
    least = criterion;
    best = ends;
  }
  return best;
}

std::optional<double> FindKnee(std::span<const CurvePoint> curve) {
  // The curve is y = c + s1 min(x, knee) + s2 max(0, x - knee); without a knee the last term is
  // absent.
  const auto fit = [curve](double knee, double& first_slope, double& second_slope) {
    NormalEquations<3> equations;
    const auto terms = [knee](const CurvePoint& point) {
      return std::array<double, 3>{1, std::min(point.tokens, knee) / fit_units::kTokens,
                                   std::max(0.0, point.tokens - knee) / fit_units::kTokens};
    };
    for (const CurvePoint& point : curve) {
      equations.Add(terms(point), point.ms, 1.0 / (point.ms * point.ms));
    }
    const auto solution = equations.Solve({});
    first_slope = solution[1];
    second_slope = solution[2];
    double squares = 0;
    for (const CurvePoint& point : curve) {
      const auto x = terms(point);
      const double error =
          (solution[0] * x[0] + solution[1] * x[1] + solution[2] * x[2]) / point.ms - 1.0;
      squares += error * error;
    }
    return squares;
  };
  if (curve.size() < 5) return std::nullopt;
  double first = 0;
  double second = 0;
  double least =
      Criterion(fit(std::numeric_limits<double>::infinity(), first, second), curve.size(), 2);
  std::optional<double> best;
  for (const CurvePoint& candidate : curve) {
    const double criterion = Criterion(fit(candidate.tokens, first, second), curve.size(), 4);
    if (criterion >= least || second <= first) continue;
    least = criterion;
    best = candidate.tokens;
  }
  return best;
}

}  // namespace tandem
