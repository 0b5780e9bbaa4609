#include "router/policy/routing_policy.h"

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

bool WasTried(const WorkerView& worker, const RouteQuery& query) {
  return std::find(query.excluded.begin(), query.excluded.end(), worker.id) != query.excluded.end();
}

std::string State(const ClusterView& view, v1::WorkerRole role, const RouteQuery& query) {
  for (const WorkerView& worker : view.workers) {
    if (worker.role != role || !worker.usable() || !query.begun) continue;
    const absl::Status status = CheckGoesOn(worker, *query.begun);
    if (!status.ok()) return std::string(status.message());
  }
  const bool has_room = std::any_of(
      view.workers.begin(), view.workers.end(), [&query, role](const WorkerView& worker) {
        return worker.role == role && worker.usable() &&
               worker.info->max_context_tokens >= query.context_tokens;
      });
  if (has_room) return "ready, but tried already";
  if (view.HasUsable(role)) {
    return fmt::format("ready, but with contexts of fewer than {} tokens", query.context_tokens);
  }
  const bool known = std::any_of(view.workers.begin(), view.workers.end(),
                                 [role](const WorkerView& worker) { return worker.role == role; });
  return known ? "not answering or leaving" : "none registered";
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
    if (worker.role != role || !worker.usable() || WasTried(worker, query)) continue;
    if (worker.info->max_context_tokens < query.context_tokens) continue;
    if (query.begun && !CheckGoesOn(worker, *query.begun).ok()) continue;
    candidates.push_back(&worker);
  }
  return candidates;
}

bool HasCandidates(const ClusterView& view, const RouteQuery& query) {
  const auto has = [&](v1::WorkerRole role) { return !Candidates(view, role, query).empty(); };
  if (query.wanted != v1::ROUTE_DISAGGREGATED && has(v1::WORKER_ROLE_UNIFIED)) return true;
  return query.wanted != v1::ROUTE_UNIFIED && has(v1::WORKER_ROLE_PREFILL) &&
         has(v1::WORKER_ROLE_DECODE);
}

RouteQuery PreferReady(const ClusterView& view, const RouteQuery& query, TimePoint now) {
  for (const bool with_starting : {false, true}) {
    RouteQuery preferred = query;
    for (const WorkerView& worker : view.workers) {
      const bool is_avoided = worker.avoided_until > now;
      if (is_avoided || (worker.load->starting() && !with_starting)) {
        preferred.excluded.push_back(worker.id);
      }
    }
    if (HasCandidates(view, preferred)) return preferred;
  }
  return query;
}

const WorkerView* HolderOfPrompt(const std::vector<const WorkerView*>& prefill,
                                 const RouteQuery& query) {
  for (const WorkerView* worker : prefill) {
    if (query.prompt_at == worker->id) return worker;
  }
  return nullptr;
}

absl::Status NoWorkerFor(const ClusterView& view, const RouteQuery& query) {
  const std::string unified = State(view, v1::WORKER_ROLE_UNIFIED, query);
  const std::string prefill = State(view, v1::WORKER_ROLE_PREFILL, query);
  const std::string decode = State(view, v1::WORKER_ROLE_DECODE, query);
  if (query.wanted == v1::ROUTE_UNIFIED) {
    return Unavailable("route=unified needs a unified worker: {}", unified);
  }
  if (query.wanted == v1::ROUTE_DISAGGREGATED) {
    return Unavailable("route=disaggregated needs a prefill worker ({}) and a decode worker ({})",
                       prefill, decode);
  }
  return Unavailable("no route: unified workers: {}; prefill workers: {}; decode workers: {}",
                     unified, prefill, decode);
}

}  // namespace tandem
