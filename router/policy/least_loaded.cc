#include "router/policy/policies.h"
#include "router/policy/worker_load.h"

namespace tandem {
namespace {

class LeastLoadedPolicy final : public RoutingPolicy {
 protected:
  double Rank(const Candidate& candidate, const RouteQuery&) const override {
    return LoadOf(*candidate.worker);
  }

  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    const double prefill = LoadOf(*placement.prefill);
    if (placement.decode == nullptr) {
      return {.cost = prefill, .features = {{"unified_load", prefill}}};
    }
    return {.cost = LoadOf(placement),
            .features = {{"prefill_load", prefill}, {"decode_load", LoadOf(*placement.decode)}}};
  }
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewLeastLoadedPolicy() {
  return std::make_unique<LeastLoadedPolicy>();
}

}  // namespace tandem
