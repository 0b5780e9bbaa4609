#include "router/routing_policy.h"

#include <algorithm>

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

struct NamedPolicy {
  std::string_view name;
  std::unique_ptr<RoutingPolicy> (*make)();
};
constexpr NamedPolicy kPolicies[] = {
    {"least-loaded", NewLeastLoadedPolicy},
    {"round-robin", NewRoundRobinPolicy},
};

std::string_view State(const ClusterView& view, v1::WorkerRole role) {
  if (view.HasUsable(role)) return "ready, but tried already";
  const bool known = std::any_of(view.workers.begin(), view.workers.end(),
                                 [role](const WorkerView& worker) { return worker.role == role; });
  return known ? "not answering" : "none registered";
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoutingPolicy>> NewRoutingPolicy(std::string_view name) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.make();
  }
  return NotFound("routing policy {}: there is none of that name; choose one of {}", name,
                  fmt::join(RoutingPolicyNames(), ", "));
}

std::vector<std::string> RoutingPolicyNames() {
  std::vector<std::string> names;
  for (const NamedPolicy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

std::vector<const WorkerView*> Candidates(const ClusterView& view, v1::WorkerRole role,
                                          const RouteQuery& query) {
  std::vector<const WorkerView*> candidates;
  for (const WorkerView& worker : view.workers) {
    const bool tried =
        std::find(query.excluded.begin(), query.excluded.end(), worker.id) != query.excluded.end();
    if (worker.role == role && worker.usable() && !tried) candidates.push_back(&worker);
  }
  return candidates;
}

absl::Status NoWorkerFor(v1::Route wanted, const ClusterView& view) {
  const std::string_view unified = State(view, v1::WORKER_ROLE_UNIFIED);
  const std::string_view prefill = State(view, v1::WORKER_ROLE_PREFILL);
  const std::string_view decode = State(view, v1::WORKER_ROLE_DECODE);
  if (wanted == v1::ROUTE_UNIFIED) {
    return Unavailable("route=unified needs a unified worker: {}", unified);
  }
  if (wanted == v1::ROUTE_DISAGGREGATED) {
    return Unavailable("route=disaggregated needs a prefill worker ({}) and a decode worker ({})",
                       prefill, decode);
  }
  return Unavailable("no route: unified workers: {}; prefill workers: {}; decode workers: {}",
                     unified, prefill, decode);
}

}  // namespace tandem
