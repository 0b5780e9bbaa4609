#include "scheduler/latency_model/backlog.h"

#include <algorithm>

namespace tandem {
namespace {

// Arrivals are assumed to continue for so many times as long as they have been observed.
constexpr double kForesight = 2;

}  // namespace

double UtilizationOf(const WorkerState& worker) {
  const ArrivalRates& arrivals = worker.usual;
  const StepCoefficients& costs = worker.steps->coefficients();
  double ms_per_second = costs.alpha.token_ms * arrivals.new_tokens_per_second +
                         costs.alpha.pair_ms * arrivals.new_pairs_per_second;
  if (worker.prefill_ends == PrefillEnds::kInDecode) {
    // The steps that carry full prefill chunks decode as well.
    const double steps = arrivals.new_tokens_per_second / std::max(worker.max_step_tokens, 1);
    const double context = arrivals.context_tokens + arrivals.output_tokens / 2;
    ms_per_second += steps * worker.steps->StepMs(0, 0, 1, 0);
    ms_per_second += arrivals.sequences_per_second * arrivals.output_tokens *
                     (costs.beta.sequence_ms + costs.beta.context_token_ms * context);
  }
  return 1e-3 * ms_per_second;
}

double ArrivalsWithin(const ArrivalRates& arrivals, ModelTime work, double utilization) {
  if (!(work.count() > 0)) return 0;
  const double foreseen_ms = kForesight * 1e3 * arrivals.lasting_seconds;
  const double idle = 1 - utilization;
  const double busy_ms = idle * foreseen_ms > work.count() ? work.count() / idle : foreseen_ms;
  return arrivals.sequences_per_second * 1e-3 * busy_ms;
}

}  // namespace tandem
