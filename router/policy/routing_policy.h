#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/cluster/cluster_view.h"
#include "router/cluster/numerics.h"

namespace tandem {

struct RouteQuery {
  v1::Route wanted = v1::ROUTE_AUTO;
  int32_t prompt_tokens = 0;
  int32_t context_tokens = 0;      // prompt and output: what a worker's context must hold
  std::vector<WorkerId> excluded;  // tried already for this request
  std::optional<Begun> begun;      // the client has tokens that others may not differ from
  // Has computed the prompt before, and may still hold its KV: it prefills again, if it can and
  // there is somebody to decode.
  std::optional<WorkerId> prompt_at;
};

// Unified on `prefill` (then `decode` is absent), or prefill on one worker and decode on the other.
struct RouteDecision {
  v1::Route route = v1::ROUTE_UNIFIED;
  WorkerView prefill;
  WorkerView decode;
};

// Answers where a request goes, from one snapshot; owns no request and calls no worker.
// Thread: the router's loop.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  // UNAVAILABLE says which role is missing for the wanted route.
  virtual absl::StatusOr<RouteDecision> Choose(const ClusterView& view,
                                               const RouteQuery& query) = 0;
};

// The least busy worker of each role. Auto compares the two routes by their busier worker; a tie
// goes to unified, which moves nothing.
std::unique_ptr<RoutingPolicy> NewLeastLoadedPolicy();
// Each role's workers in turn, whatever their load; auto takes the possible routes in turn.
std::unique_ptr<RoutingPolicy> NewRoundRobinPolicy();

// "least-loaded", "round-robin". NOT_FOUND lists the names.
absl::StatusOr<std::unique_ptr<RoutingPolicy>> NewRoutingPolicy(std::string_view name);
std::vector<std::string> RoutingPolicyNames();

// The workers of `role` that the query may use. What every policy chooses from.
std::vector<const WorkerView*> Candidates(const ClusterView& view, v1::WorkerRole role,
                                          const RouteQuery& query);
// Whether some wanted route has a candidate for each of its roles.
bool HasCandidates(const ClusterView& view, const RouteQuery& query);
// `query`, narrowed where that leaves a candidate: a worker that is ready comes before one that
// starts, and that before one that is avoided.
RouteQuery PreferReady(const ClusterView& view, const RouteQuery& query, TimePoint now);
// Of these candidates the one that has the prompt already, or null.
const WorkerView* HolderOfPrompt(const std::vector<const WorkerView*>& prefill,
                                 const RouteQuery& query);
// The error of a query for which there is no candidate.
absl::Status NoWorkerFor(const ClusterView& view, const RouteQuery& query);

}  // namespace tandem
