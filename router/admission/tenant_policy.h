#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tandem {

// What one tenant may have. Nothing: no limit.
struct TenantLimits {
  std::optional<double> requests_per_minute;  // above 0
  std::optional<double> tokens_per_minute;    // above 0; of prompts and outputs
  std::optional<int32_t> max_in_flight;       // above 0; choices or beams
  double weight = 1;  // above 0; of its share where tenants compete, relative to theirs
};

// The limits of all tenants.
struct TenantPolicy {
  TenantLimits usual;  // of each tenant that is not in `tenants`
  std::map<std::string, TenantLimits, std::less<>> tenants;
  std::set<std::string> named;  // whose use is counted apart: those that an operator named anywhere

  const TenantLimits& Of(std::string_view tenant) const {
    const auto found = tenants.find(tenant);
    return found == tenants.end() ? usual : found->second;
  }
};

}  // namespace tandem
