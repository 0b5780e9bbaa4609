#include "router/policy/policies.h"

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

using MadePolicy = absl::StatusOr<std::unique_ptr<RoutingPolicy>>;

MadePolicy MakeClassic(const PolicyParts& parts) {
  if (parts.options.classic) return NewClassicPolicy(*parts.options.classic);
  return FailedPrecondition(
      "the routing policy classic needs measured scalars: give --classic-parameters FILE, as "
      "written by tandem profile");
}

struct NamedPolicy {
  std::string_view name;
  MadePolicy (*make)(const PolicyParts& parts);
};
constexpr NamedPolicy kPolicies[] = {
    {"auto", [](const PolicyParts& parts) -> MadePolicy { return NewAutoPolicy(parts); }},
    {"least-loaded", [](const PolicyParts&) -> MadePolicy { return NewLeastLoadedPolicy(); }},
    {"prefix-affinity", [](const PolicyParts&) -> MadePolicy { return NewPrefixAffinityPolicy(); }},
    {"round-robin", [](const PolicyParts&) -> MadePolicy { return NewRoundRobinPolicy(); }},
    {"unified",
     [](const PolicyParts&) -> MadePolicy { return NewFixedRoutePolicy(v1::ROUTE_UNIFIED); }},
    {"disaggregated",
     [](const PolicyParts&) -> MadePolicy { return NewFixedRoutePolicy(v1::ROUTE_DISAGGREGATED); }},
    {"classic", MakeClassic},
};

}  // namespace

absl::StatusOr<std::unique_ptr<RoutingPolicy>> NewRoutingPolicy(std::string_view name,
                                                                const PolicyParts& parts) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.make(parts);
  }
  return NotFound("routing policy {}: there is none of that name; choose one of {}", name,
                  fmt::join(RoutingPolicyNames(), ", "));
}

std::vector<std::string> RoutingPolicyNames() {
  std::vector<std::string> names;
  for (const NamedPolicy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

}  // namespace tandem
