#include <algorithm>

#include "router/policy/routing_policy.h"

namespace tandem {
namespace {

// One scale for both kinds of work: a step computes a few hundred prompt tokens in the time that
// it takes to decode a few running sequences, so a sequence weighs as much as this many prompt
// tokens. A guess until costs are measured; it only orders workers.
constexpr int64_t kSequenceWeight = 64;

int64_t Load(const WorkerView& worker) {
  return worker.PendingPromptTokens() + kSequenceWeight * worker.Sequences();
}

const WorkerView* LeastLoaded(const std::vector<const WorkerView*>& workers) {
  const auto least = std::min_element(workers.begin(), workers.end(),
                                      [](const WorkerView* a, const WorkerView* b) {
                                        if (Load(*a) != Load(*b)) return Load(*a) < Load(*b);
                                        return a->AvailableBlocks() > b->AvailableBlocks();
                                      });
  return least == workers.end() ? nullptr : *least;
}

class LeastLoadedPolicy final : public RoutingPolicy {
 public:
  absl::StatusOr<RouteDecision> Choose(const ClusterView& view, const RouteQuery& query) override {
    const WorkerView* unified = nullptr;
    const WorkerView* holder = nullptr;
    const WorkerView* prefill = nullptr;
    const WorkerView* decode = nullptr;
    if (query.wanted != v1::ROUTE_DISAGGREGATED) {
      unified = LeastLoaded(Candidates(view, v1::WORKER_ROLE_UNIFIED, query));
    }
    if (query.wanted != v1::ROUTE_UNIFIED) {
      const auto prefills = Candidates(view, v1::WORKER_ROLE_PREFILL, query);
      holder = HolderOfPrompt(prefills, query);
      prefill = holder != nullptr ? holder : LeastLoaded(prefills);
      decode = LeastLoaded(Candidates(view, v1::WORKER_ROLE_DECODE, query));
    }
    const bool both = prefill != nullptr && decode != nullptr;
    if (unified == nullptr && !both) return NoWorkerFor(view, query);
    const auto is_less_busy = [&] {
      return Load(*unified) <= std::max(Load(*prefill), Load(*decode));
    };
    if (!both || (unified != nullptr && holder == nullptr && is_less_busy())) {
      return RouteDecision{.route = v1::ROUTE_UNIFIED, .prefill = *unified, .decode = {}};
    }
    return RouteDecision{.route = v1::ROUTE_DISAGGREGATED, .prefill = *prefill, .decode = *decode};
  }
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewLeastLoadedPolicy() {
  return std::make_unique<LeastLoadedPolicy>();
}

}  // namespace tandem
