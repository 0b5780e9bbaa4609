#include "router/attempt/reroute_stats.h"

#include <utility>

namespace tandem {

Reroute KindOf(const AttemptWorkers& refused, const RouteDecision& taken) {
  if (taken.route != refused.route()) {
    return taken.route == v1::ROUTE_UNIFIED ? Reroute::kUnified : Reroute::kDisaggregated;
  }
  const bool same = taken.prefill == refused.prefill.id &&
                    (!refused.decode || taken.decode == refused.decode->id);
  return same ? Reroute::kAskedAgain : Reroute::kOtherWorker;
}

void RerouteStats::Count(Reroute kind, std::string why) {
  absl::MutexLock lock(&mutex_);
  ++counts_[static_cast<size_t>(kind)];
  latest_ = std::move(why);
}

void RerouteStats::CountMoved() {
  absl::MutexLock lock(&mutex_);
  ++moved_;
}

v1::RerouteUse RerouteStats::Use() const {
  absl::MutexLock lock(&mutex_);
  const auto count = [this](Reroute kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return counts_[static_cast<size_t>(kind)];
  };
  v1::RerouteUse use;
  use.set_other_worker(count(Reroute::kOtherWorker));
  use.set_to_unified(count(Reroute::kUnified));
  use.set_to_disaggregated(count(Reroute::kDisaggregated));
  use.set_asked_again(count(Reroute::kAskedAgain));
  use.set_moved(moved_);
  use.set_latest(latest_);
  return use;
}

}  // namespace tandem
