#include "router/ledger/arrival_meter.h"

#include <algorithm>
#include <cmath>

#include "scheduler/latency_model/step_features.h"

namespace tandem {
namespace {

// The first requests are taken to have arrived over at least this time.
constexpr double kLeastSeconds = 1;

double SecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

double ArrivalMeter::WeightAt(TimePoint now) const {
  return std::exp(-SecondsBetween(latest_, now) / seconds_);
}

void ArrivalMeter::Add(const RequestPart& part, TimePoint now) {
  if (first_ == TimePoint{}) first_ = now;
  const double weight = WeightAt(now);
  for (double* const sum :
       {&sums_.sequences, &sums_.new_tokens, &sums_.new_pairs, &sums_.prompt_tokens,
        &sums_.prompt_output_pairs, &sums_.output_tokens, &sums_.sent_seconds}) {
    *sum *= weight;
  }
  latest_ = now;
  sums_.sequences += part.sequences;
  sums_.sent_seconds += part.sequences * SecondsBetween(first_, now);
  const double prompt_tokens = static_cast<double>(part.sequences) * part.prompt_tokens;
  sums_.prompt_tokens += prompt_tokens;
  sums_.prompt_output_pairs += prompt_tokens * part.output_tokens;
  sums_.output_tokens += part.sequences * part.output_tokens;
  if (part.kind == RequestPart::Kind::kDecode) return;
  sums_.new_tokens += part.prompt_tokens - part.cached_tokens;
  sums_.new_pairs += static_cast<double>(CausalPairs(part.cached_tokens, part.prompt_tokens));
}

// While requests came for less time than the exponential average remembers, it would be too low, so
// it is scaled up.
ArrivalRates ArrivalMeter::At(TimePoint now) const {
  if (!(sums_.sequences > 0)) return {};
  const double seconds = std::max(kLeastSeconds, SecondsBetween(first_, now));
  const double rate = WeightAt(now) / (seconds_ * (1 - std::exp(-seconds / seconds_)));
  const double age = SecondsBetween(first_, now) - sums_.sent_seconds / sums_.sequences;
  return {.sequences_per_second = sums_.sequences * rate,
          .new_tokens_per_second = sums_.new_tokens * rate,
          .new_pairs_per_second = sums_.new_pairs * rate,
          .prompt_tokens = sums_.prompt_tokens / sums_.sequences,
          .context_tokens = sums_.prompt_output_pairs / sums_.output_tokens,
          .output_tokens = sums_.output_tokens / sums_.sequences,
          .lasting_seconds = std::max(0.0, 2 * age)};
}

}  // namespace tandem
