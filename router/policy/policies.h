#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "router/ledger/request_ledger.h"
#include "router/policy/policy_options.h"
#include "router/policy/prediction_errors.h"
#include "router/policy/routing_policy.h"

namespace tandem {

// What policies may ask besides the snapshot and the query of a decision. All of it outlives the
// policies.
struct PolicyParts {
  const Clock& clock;
  const RequestLedger& ledger;
  // The errors of recent requests; null: predictions are not compared with what came true.
  const PredictionErrors* errors = nullptr;
  PolicyOptions options = {};
};

// Chooses the least busy worker of each role. The two routes are compared by their busier worker.
std::unique_ptr<RoutingPolicy> NewLeastLoadedPolicy();
// Chooses the workers of each role in turn, whatever their load, and the routes in turn where both
// are possible.
std::unique_ptr<RoutingPolicy> NewRoundRobinPolicy();
// Chooses the worker that has cached most of the prompt, while it is not overloaded beside the
// others of its role; among equals the least busy one. A hit of less than a quarter of the prompt
// does not count.
std::unique_ptr<RoutingPolicy> NewPrefixAffinityPolicy();

// Chooses the lowest predicted cost (docs/cost_model.md). Where a worker has not reported what its
// steps cost, or no link was measured, it chooses the least busy workers.
std::unique_ptr<RoutingPolicy> NewAutoPolicy(const PolicyParts& parts);
// Chooses the least busy workers of this route wherever it is possible, else of the other one.
std::unique_ptr<RoutingPolicy> NewFixedRoutePolicy(v1::Route route);
// Chooses by closed formulas, as a baseline (router/policy/classic_model.h).
std::unique_ptr<RoutingPolicy> NewClassicPolicy(const ClassicCoefficients& coefficients);

// The policy of this name: "auto", "least-loaded", "prefix-affinity", "round-robin", "unified",
// "disaggregated" or "classic". NOT_FOUND lists the names. Other errors say what the policy lacks.
absl::StatusOr<std::unique_ptr<RoutingPolicy>> NewRoutingPolicy(std::string_view name,
                                                                const PolicyParts& parts);
std::vector<std::string> RoutingPolicyNames();

}  // namespace tandem
