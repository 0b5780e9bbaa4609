#include "router/policy/policies.h"

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

}  // namespace tandem
