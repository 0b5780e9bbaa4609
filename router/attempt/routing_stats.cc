#include "router/attempt/routing_stats.h"

#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

using Basis = RouteDecision::Basis;

double MillisecondsOf(const std::optional<ModelTime>& limit) {
  return limit.value_or(ModelTime::zero()).count();
}

}  // namespace

void RoutingStats::Count(const RouteDecision& taken) {
  const std::string missing = taken.basis == Basis::kNotMeasured ? taken.reason : "";
  bool is_new = false;
  {
    absl::MutexLock lock(&mutex_);
    ++bases_[static_cast<size_t>(taken.basis)];
    if (taken.route == v1::ROUTE_UNIFIED) ++unified_;
    is_new = missing_.empty() != missing.empty();
    missing_ = missing;
  }
  if (!is_new) return;
  if (missing.empty()) {
    LogInfo("routing policy={} by=cost: all costs are known", policy_);
  } else {
    LogInfo("routing policy={} by=load why=\"{}\"", policy_, missing);
  }
}

v1::RoutingUse RoutingStats::Use() const {
  v1::RoutingUse use;
  use.set_policy(policy_);
  use.set_ttft_slo_ms(MillisecondsOf(slo_.ttft));
  use.set_tpot_slo_ms(MillisecondsOf(slo_.tpot));
  absl::MutexLock lock(&mutex_);
  const auto count = [this](Basis basis) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return bases_[static_cast<size_t>(basis)];
  };
  use.set_lowest_cost(count(Basis::kLowestCost));
  use.set_within_error(count(Basis::kWithinError));
  use.set_not_measured(count(Basis::kNotMeasured));
  use.set_unified(unified_);
  use.set_disaggregated(use.lowest_cost() + use.within_error() + use.not_measured() - unified_);
  use.set_missing(missing_);
  return use;
}

}  // namespace tandem
