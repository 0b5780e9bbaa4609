#include "router/attempt/exclusions.h"

#include <algorithm>
#include <utility>

#include "router/policy/candidates.h"

namespace tandem {

void Exclusions::Add(const WorkerId& id, Until until, TimePoint now) {
  std::erase_if(list_, [&id](const Exclusion& one) { return one.id == id; });
  list_.push_back({.id = id, .since = now, .until = until, .unreached_by = std::nullopt});
}

void Exclusions::AddHandOff(const WorkerId& prefill, const WorkerId& decode,
                            const ClusterView& view, const RouteQuery& query, TimePoint now) {
  const bool failed_before = std::any_of(list_.begin(), list_.end(), [&](const Exclusion& one) {
    return one.unreached_by == prefill && one.id != decode;
  });
  if (failed_before && HasPlaceWithout(prefill, view, query)) {
    return Add(prefill, Until::kNoOtherPlace, now);
  }
  Add(decode, Until::kNoOtherPlace, now);
  list_.back().unreached_by = prefill;
  if (!HasPlaceWithout(decode, view, query)) Add(prefill, Until::kReport, now);
}

void Exclusions::MarkLatestNoWait() { list_.back().no_wait = true; }

void Exclusions::KeepNoWait() {
  for (Exclusion& one : list_) one.no_wait = false;
}

bool Exclusions::ClearNoWait() {
  return std::erase_if(list_, [](const Exclusion& one) { return one.no_wait; }) > 0;
}

void Exclusions::Relax() {
  for (Exclusion& one : list_) {
    if (one.until == Until::kAttempts) one.until = Until::kReport;
  }
}

RouteQuery Exclusions::Apply(const ClusterView& view, RouteQuery query) const {
  if (list_.empty()) return query;
  RouteQuery elsewhere = query;
  for (const Exclusion& one : list_) {
    if (one.until == Until::kNoOtherPlace) elsewhere.excluded.push_back(one.id);
  }
  const bool has_other_place = HasCandidates(view, elsewhere);
  for (const Exclusion& one : list_) {
    const WorkerView* const worker = view.Find(one.id);
    const bool has_reported = worker != nullptr && worker->last_report > one.since;
    const bool ends_with_report =
        one.until == Until::kReport || (one.until == Until::kNoOtherPlace && !has_other_place);
    if (!has_reported || !ends_with_report) query.excluded.push_back(one.id);
  }
  return query;
}

bool Exclusions::HasPlaceWithout(const WorkerId& id, const ClusterView& view,
                                 const RouteQuery& query) const {
  RouteQuery without = Apply(view, query);
  without.excluded.push_back(id);
  return HasCandidates(view, without);
}

}  // namespace tandem
