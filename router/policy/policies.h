#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/policy/routing_policy.h"

namespace tandem {

// The least busy worker of each role. The two routes are compared by their busier worker.
std::unique_ptr<RoutingPolicy> NewLeastLoadedPolicy();
// The workers of each role in turn, whatever their load, and the routes in turn where both are
// possible.
std::unique_ptr<RoutingPolicy> NewRoundRobinPolicy();

// "least-loaded", "round-robin". NOT_FOUND lists the names.
absl::StatusOr<std::unique_ptr<RoutingPolicy>> NewRoutingPolicy(std::string_view name);
std::vector<std::string> RoutingPolicyNames();

}  // namespace tandem
