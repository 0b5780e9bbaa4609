#include "router/ledger/demand_rate.h"

#include <cmath>

namespace tandem {
namespace {

constexpr double kSeconds = 5;  // after which a past amount counts 1/e of what it did

}  // namespace

void DemandRate::Add(double amount, TimePoint now) {
  rate_ = At(now) + amount / kSeconds;
  latest_ = now;
}

double DemandRate::At(TimePoint now) const {
  return rate_ * std::exp(-std::chrono::duration<double>(now - latest_).count() / kSeconds);
}

}  // namespace tandem
