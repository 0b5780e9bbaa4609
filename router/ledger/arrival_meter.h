#pragma once

#include "base/clock.h"
#include "router/ledger/request_part.h"
#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// The rate at which requests are sent to a worker and what they are like, averaged exponentially: a
// request counts 1/e after `seconds`. It counts when it is sent, so that a burst shows at once.
class ArrivalMeter {
 public:
  explicit ArrivalMeter(double seconds) : seconds_(seconds) {}

  void Add(const RequestPart& part, TimePoint now);
  ArrivalRates At(TimePoint now) const;

 private:
  // Sums over the requests that arrived, the latest with the most weight.
  struct Sums {
    double sequences = 0;
    double new_tokens = 0;
    double new_pairs = 0;
    double prompt_tokens = 0;
    double prompt_output_pairs = 0;  // prompt tokens times output tokens
    double output_tokens = 0;
    double sent_seconds = 0;  // from first_ until each request was sent
  };

  // The weight at `now` of the sums as they were at latest_.
  double WeightAt(TimePoint now) const;

  const double seconds_;
  Sums sums_;  // as they were at latest_
  TimePoint first_{};
  TimePoint latest_{};
};

}  // namespace tandem
