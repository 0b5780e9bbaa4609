#include "router/policy/policies.h"
#include "router/policy/worker_load.h"

namespace tandem {
namespace {

// The least busy workers of one route, wherever it is possible.
class FixedRoutePolicy final : public RoutingPolicy {
 public:
  explicit FixedRoutePolicy(v1::Route route) : route_(route) {}

 protected:
  double Rank(const Candidate& candidate, const RouteQuery&) const override {
    return LoadOf(*candidate.worker);
  }

  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    // Added to the cost of placements on the other route; above every load.
    constexpr double kOtherRoute = 1e15;
    const double load = LoadOf(placement);
    const bool is_other = placement.route() != route_;
    return {.cost = is_other ? kOtherRoute + load : load, .features = {{"load", load}}};
  }

 private:
  const v1::Route route_;
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewFixedRoutePolicy(v1::Route route) {
  return std::make_unique<FixedRoutePolicy>(route);
}

}  // namespace tandem
