#include "bench/serving/rate_search.h"

#include <cmath>

namespace tandem::loadgen {

std::optional<double> RateSearch::Next() const {
  if (probes_ >= options_.max_probes) return std::nullopt;
  if (holds_ && fails_ && *fails_ <= *holds_ * (1 + options_.tolerance)) return std::nullopt;
  return next_;
}

void RateSearch::Report(bool attained) {
  ++probes_;
  (attained ? holds_ : fails_) = next_;
  if (!fails_) {
    next_ = *holds_ * 2;
  } else if (!holds_) {
    next_ = *fails_ / 2;
  } else {
    next_ = std::sqrt(*holds_ * *fails_);
  }
}

}  // namespace tandem::loadgen
