#include "router/policy/routing_policy.h"

namespace tandem {
namespace {

class RoundRobinPolicy final : public RoutingPolicy {
 public:
  absl::StatusOr<RouteDecision> Choose(const ClusterView& view, const RouteQuery& query) override {
    const uint64_t turn = turn_++;
    const auto unified = Candidates(view, v1::WORKER_ROLE_UNIFIED, query);
    const auto prefill = Candidates(view, v1::WORKER_ROLE_PREFILL, query);
    const auto decode = Candidates(view, v1::WORKER_ROLE_DECODE, query);
    const bool may_unify = query.wanted != v1::ROUTE_DISAGGREGATED && !unified.empty();
    const bool may_split = query.wanted != v1::ROUTE_UNIFIED && !prefill.empty() && !decode.empty();
    if (!may_unify && !may_split) return NoWorkerFor(view, query);
    // With both routes possible a worker's turn comes at every second request.
    const uint64_t round = may_unify && may_split ? turn / 2 : turn;
    const WorkerView* const holder = may_split ? HolderOfPrompt(prefill, query) : nullptr;
    if (may_unify && holder == nullptr && (!may_split || turn % 2 == 0)) {
      return RouteDecision{
          .route = v1::ROUTE_UNIFIED, .prefill = *unified[round % unified.size()], .decode = {}};
    }
    return RouteDecision{.route = v1::ROUTE_DISAGGREGATED,
                         .prefill = holder ? *holder : *prefill[round % prefill.size()],
                         .decode = *decode[round % decode.size()]};
  }

 private:
  uint64_t turn_ = 0;
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewRoundRobinPolicy() {
  return std::make_unique<RoundRobinPolicy>();
}

}  // namespace tandem
