#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// What tenants have had of a router since it started: each of those that an operator named, and all others
// together, because names that clients make up must not fill the memory or the metrics.
// Thread: one at a time (AdmissionControl's lock).
class TenantCounts {
 public:
  static constexpr size_t kMostNamed = 100;

  // Tenants that are counted apart from now on, in the order of the alphabet; those beyond the bound are not.
  // Names that stay keep their counts, those that go lose them.
  void SetNamed(const std::set<std::string>& names);

  void Admitted(std::string_view tenant) { ++Of(tenant).admitted; }
  void Refused(std::string_view tenant) { ++Of(tenant).refused; }
  void Used(std::string_view tenant, int64_t tokens);

  // Adds one element for each tenant that is named, and one for all others; none where no tenant is named.
  // in_flight: of the named tenant. all_in_flight: of all tenants.
  void Report(const std::function<int32_t(const std::string&)>& in_flight, int32_t all_in_flight,
              v1::AdmissionUse& use) const;

 private:
  struct Counts {
    uint64_t admitted = 0;
    uint64_t refused = 0;
    uint64_t tokens = 0;
  };
  Counts& Of(std::string_view tenant);

  std::map<std::string, Counts, std::less<>> named_;
  Counts others_;
};

}  // namespace tandem
