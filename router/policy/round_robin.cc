#include "router/policy/policies.h"

namespace tandem {
namespace {

class RoundRobinPolicy final : public RoutingPolicy {
 protected:
  void Begin(const Candidates& candidates, const RouteQuery&) override {
    const uint64_t turn = turn_;
    // With both routes possible a worker's turn comes at every second request.
    const bool alternates = candidates.can_unify() && candidates.can_disaggregate();
    round_ = alternates ? turn / 2 : turn;
    prefers_disaggregated_ = alternates && turn % 2 == 1;
  }
  void OnTaken(const RouteDecision&, const RouteQuery&) override { ++turn_; }

  // How many turns later it would be this worker's turn.
  double Rank(const Candidate& candidate, const RouteQuery&) const override {
    const size_t count = candidate.count;
    return static_cast<double>((candidate.position + count - round_ % count) % count);
  }

  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    const bool is_disaggregated = placement.route() == v1::ROUTE_DISAGGREGATED;
    return {.cost = is_disaggregated == prefers_disaggregated_ ? 0.0 : 1.0};
  }

 private:
  uint64_t turn_ = 0;
  uint64_t round_ = 0;
  bool prefers_disaggregated_ = false;
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewRoundRobinPolicy() {
  return std::make_unique<RoundRobinPolicy>();
}

}  // namespace tandem
