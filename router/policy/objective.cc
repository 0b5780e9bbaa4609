#include "router/policy/objective.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

// A missed SLO counts as much as this latency.
constexpr double kMissMs = 60'000;
// How much more a millisecond counts that comes after the SLO.
constexpr double kLateness = 10;

double MissProbability(double predicted_ms, double slo_ms, double error) {
  const double deviation = std::max(error * predicted_ms, 1e-9);
  return std::erfc((slo_ms - predicted_ms) / (deviation * std::numbers::sqrt2)) / 2;
}

// `tokens`: of the output that are late when the prediction is beyond the SLO.
double MissCostMs(ModelTime predicted, const std::optional<ModelTime>& slo, double tokens,
                  double error) {
  if (!slo) return 0;
  const double late_ms = std::max(0.0, (predicted - *slo).count());
  return kMissMs * MissProbability(predicted.count(), slo->count(), error) +
         kLateness * late_ms * tokens;
}

double Square(ModelTime time) { return time.count() * time.count(); }

}  // namespace

PlacementCost CostOf(const PlacementPrediction& prediction, const Slo& slo, double output_tokens,
                     double error) {
  const double further = std::max(0.0, output_tokens - 1);
  PlacementCost cost;
  cost.latency_ms = prediction.e2e.count();
  cost.externality_ms = prediction.externality.count();
  cost.slo_ms = MissCostMs(prediction.ttft, slo.ttft, 1, error);
  if (further > 0) cost.slo_ms += MissCostMs(prediction.tpot, slo.tpot, further, error);
  return cost;
}

double DifferenceErrorMs(const PlacementPrediction& a, const PlacementPrediction& b, double error) {
  const PredictedStages& one = a.stages;
  const PredictedStages& other = b.stages;
  return error *
         std::sqrt(Square(one.admission - other.admission) + Square(one.queue - other.queue) +
                   Square(one.prefill - other.prefill) + Square(one.transfer - other.transfer) +
                   Square(one.decode - other.decode) + Square(a.externality - b.externality));
}

}  // namespace tandem
