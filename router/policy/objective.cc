#include "router/policy/objective.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

// A missed SLO counts as much as this latency.
constexpr double kMissMs = 60'000;
// The extra weight of a millisecond that comes after the SLO.
constexpr double kLateness = 1;
// The extra weight of a millisecond before the first token, over one of the output, which is read
// while it comes.
constexpr double kWaiting = 2;
// The latencies of requests at one worker spread by at least so much around the predicted one.
constexpr double kLeastSpread = 0.08;
// The TTFT of other requests at a worker spreads by at least this share of the time that the prompt
// takes, because their prompts may be much longer or shorter. Without it, prompts so long that they
// miss their SLO anywhere would be put wherever they are in the way of short ones.
constexpr double kPromptSpread = 0.5;

// Where a limit lies in the distribution of a latency, which is taken to be normal.
class Risk {
 public:
  Risk(ModelTime predicted, ModelTime limit, double deviation_ms)
      : deviation_(std::max(deviation_ms, 1e-9)),
        distance_((limit - predicted).count() / deviation_) {}

  double Miss() const { return std::erfc(distance_ / std::numbers::sqrt2) / 2; }
  // How much the probability of a miss rises per millisecond of delay.
  double MissPerMs() const {
    return std::exp(-distance_ * distance_ / 2) * std::numbers::inv_sqrtpi /
           (std::numbers::sqrt2 * deviation_);
  }

 private:
  const double deviation_;
  const double distance_;  // from the prediction to the limit, in standard deviations
};

double SpreadMs(ModelTime predicted, double error) {
  return std::max(error, kLeastSpread) * predicted.count();
}

double LateMs(ModelTime predicted, ModelTime limit) {
  return std::max(0.0, (predicted - limit).count());
}

double Square(ModelTime time) { return time.count() * time.count(); }

}  // namespace

double LatencyMs(ModelTime ttft, ModelTime e2e) { return e2e.count() + kWaiting * ttft.count(); }

PlacementCost CostOf(const PlacementPrediction& prediction, const Slo& slo, double output_tokens,
                     double error) {
  const double further = std::max(0.0, output_tokens - 1);
  PlacementCost cost;
  cost.latency_ms = LatencyMs(prediction.ttft, prediction.e2e);
  cost.externality_ms = prediction.externality.count();
  // With SLOs it is misses that count. The time that a long backlog costs all later requests until
  // it is gone would outweigh misses: on simulated fleets fewer requests kept their SLOs when it
  // was counted.
  const bool has_slo = slo.ttft || slo.tpot;
  const ModelTime prompts = has_slo
                                ? prediction.later_prompts
                                : std::max(prediction.later_prompts, prediction.backlog_prompts);
  cost.externality_ms += (1 + kWaiting) * prompts.count();
  if (!has_slo) cost.externality_ms += prediction.backlog_transfers.count();
  if (slo.ttft) {
    const double spread_ms = SpreadMs(prediction.ttft, error);
    const Risk risk(prediction.ttft, *slo.ttft, spread_ms);
    cost.slo_ms += kMissMs * risk.Miss() + kLateness * LateMs(prediction.ttft, *slo.ttft);
    const Risk of_others(prediction.ttft, *slo.ttft,
                         std::max(spread_ms, kPromptSpread * prediction.stages.prefill.count()));
    cost.others_slo_ms += kMissMs * of_others.MissPerMs() * prediction.later_prompts.count();
  }
  if (slo.tpot && further > 0) {
    const Risk risk(prediction.tpot, *slo.tpot, SpreadMs(prediction.tpot, error));
    cost.slo_ms += kMissMs * risk.Miss() + kLateness * further * LateMs(prediction.tpot, *slo.tpot);
    // A delay of an output raises its TPOT by the delay over its number of tokens.
    const double tokens = std::max(
        1.0, prediction.others_output_tokens > 0 ? prediction.others_output_tokens : output_tokens);
    cost.others_slo_ms += kMissMs * risk.MissPerMs() * prediction.externality.count() / tokens;
  }
  return cost;
}

double DifferenceErrorMs(const PlacementPrediction& a, const PlacementPrediction& b, double error) {
  const PredictedStages& one = a.stages;
  const PredictedStages& other = b.stages;
  const double of_waiting = Square(one.admission - other.admission) +
                            Square(one.queue - other.queue) + Square(one.prefill - other.prefill) +
                            Square(a.later_prompts - b.later_prompts);
  const double of_output = Square(one.transfer - other.transfer) +
                           Square(one.decode - other.decode) +
                           Square(a.externality - b.externality);
  return error * std::sqrt((1 + kWaiting) * (1 + kWaiting) * of_waiting + of_output);
}

}  // namespace tandem
