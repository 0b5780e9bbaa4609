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

// What a router has admitted, refused and used for tenants since it started: for each of those that
// an operator named, and for all others together, because names that clients make up must not fill
// the memory or the metrics.
// Thread: one at a time (AdmissionControl's lock).
class TenantCounts {
 public:
  static constexpr size_t kMostNamed = 100;

  // Sets the tenants that are counted apart from now on: of `names`, the first kMostNamed in
  // alphabetical order. Names that stay keep their counts, those that go lose them.
  void SetNamed(const std::set<std::string>& names);

  void Admitted(std::string_view tenant) { ++Of(tenant).admitted; }
  void Refused(std::string_view tenant) { ++Of(tenant).refused; }
  void Used(std::string_view tenant, int64_t tokens);

  // Adds to `use` one element for each named tenant, and one for all others; none where no tenant
  // is named. in_flight: returns the rows that a named tenant has in flight. all_in_flight: the
  // rows of all tenants together.
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
