#include "router/admission/tenant_counts.h"

#include <algorithm>
#include <utility>

namespace tandem {

void TenantCounts::SetNamed(const std::set<std::string>& names) {
  std::map<std::string, Counts, std::less<>> named;
  for (const std::string& name : names) {
    if (named.size() == kMostNamed) break;
    const auto before = named_.find(name);
    named.emplace(name, before == named_.end() ? Counts() : before->second);
  }
  named_ = std::move(named);
}

void TenantCounts::Used(std::string_view tenant, int64_t tokens) {
  Of(tenant).tokens += static_cast<uint64_t>(std::max<int64_t>(tokens, 0));
}

TenantCounts::Counts& TenantCounts::Of(std::string_view tenant) {
  const auto found = named_.find(tenant);
  return found == named_.end() ? others_ : found->second;
}

void TenantCounts::Report(const std::function<int32_t(const std::string&)>& in_flight,
                          int32_t all_in_flight, v1::AdmissionUse& use) const {
  if (named_.empty()) return;
  const auto add = [&use](const std::string& name, const Counts& counts, int32_t rows) {
    v1::TenantUse& tenant = *use.add_tenants();
    tenant.set_tenant(name);
    tenant.set_in_flight(rows);
    tenant.set_admitted(counts.admitted);
    tenant.set_refused(counts.refused);
    tenant.set_tokens(counts.tokens);
  };
  int32_t of_others = all_in_flight;
  for (const auto& [name, counts] : named_) {
    const int32_t rows = in_flight(name);
    add(name, counts, rows);
    of_others -= rows;
  }
  add("", others_, of_others);
}

}  // namespace tandem
