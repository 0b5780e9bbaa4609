#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tandem {

// The limits of one tenant. A limit without a value does not apply.
struct TenantLimits {
  std::optional<double> requests_per_minute;  // above 0
  std::optional<double> tokens_per_minute;    // above 0; of prompts and outputs
  std::optional<int32_t> max_in_flight;       // above 0; choices or beams
  double weight = 1;  // above 0; its share is its weight over that of all tenants that compete
};

// The limits of all tenants.
struct TenantPolicy {
  TenantLimits usual;  // the limits of each tenant that is not in `tenants`
  std::map<std::string, TenantLimits, std::less<>> tenants;
  std::set<std::string> named;  // are counted apart, because an operator named them somewhere

  const TenantLimits& Of(std::string_view tenant) const {
    const auto found = tenants.find(tenant);
    return found == tenants.end() ? usual : found->second;
  }
};

}  // namespace tandem
