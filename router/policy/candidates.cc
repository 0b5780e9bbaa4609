#include "router/policy/candidates.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/status.h"
#include "router/policy/bounded_load.h"
#include "router/policy/worker_load.h"

namespace tandem {
namespace {

// Whether a worker can take a request, and if not, the first reason why.
enum class Eligibility : uint8_t {
  kEligible,
  kUnusable,
  kOtherNumerics,
  kContextTooSmall,
  kExcluded,
};
constexpr size_t kNumEligibilities = 5;

Eligibility EligibilityOf(const WorkerView& worker, const RouteQuery& query) {
  if (!worker.usable()) return Eligibility::kUnusable;
  if (query.begun && !CheckContinues(worker, *query.begun).ok()) return Eligibility::kOtherNumerics;
  if (worker.info->max_context_tokens < query.context_tokens) return Eligibility::kContextTooSmall;
  const bool is_excluded = std::ranges::find(query.excluded, worker.id) != query.excluded.end();
  return is_excluded ? Eligibility::kExcluded : Eligibility::kEligible;
}

std::vector<Candidate> CandidatesOf(v1::WorkerRole role, const ClusterView& view,
                                    const RouteQuery& query) {
  std::vector<Candidate> candidates;
  candidates.reserve(view.workers.size());
  for (const WorkerView& worker : view.workers) {
    if (worker.role != role || EligibilityOf(worker, query) != Eligibility::kEligible) continue;
    candidates.push_back({.worker = &worker, .position = candidates.size(), .count = 0});
  }
  for (Candidate& candidate : candidates) candidate.count = candidates.size();
  return candidates;
}

// Leaves only the worker `id`, where it is a candidate that is not overloaded beside the others.
// Otherwise returns false and changes nothing.
bool KeepOnly(const WorkerId& id, std::vector<Candidate>& candidates) {
  const Candidate* found = nullptr;
  for (const Candidate& one : candidates) {
    if (one.worker->id == id) found = &one;
  }
  if (found == nullptr || IsOverloaded(LoadOf(*found->worker), LeastLoad(candidates))) return false;
  candidates = {{.worker = found->worker, .position = 0, .count = 1}};
  return true;
}

void KeepToSession(const SessionPlace& place, Candidates& found) {
  if (place.decode == WorkerId()) {
    found.by_session = KeepOnly(place.prefill, found.unified);
    if (!found.by_session) return;
    found.prefill.clear();
    found.decode.clear();
    return;
  }
  std::vector<Candidate> prefill = found.prefill;
  found.by_session = KeepOnly(place.prefill, prefill) && KeepOnly(place.decode, found.decode);
  if (!found.by_session) return;
  found.prefill = std::move(prefill);
  found.unified.clear();
}

std::string StateOf(v1::WorkerRole role, const ClusterView& view, const RouteQuery& query) {
  std::array<const WorkerView*, kNumEligibilities> first = {};  // the first one of each eligibility
  for (const WorkerView& worker : view.workers) {
    if (worker.role != role) continue;
    const WorkerView*& found = first[static_cast<size_t>(EligibilityOf(worker, query))];
    if (found == nullptr) found = &worker;
  }
  const auto find = [&first](Eligibility one) { return first[static_cast<size_t>(one)]; };
  if (const WorkerView* const other = find(Eligibility::kOtherNumerics)) {
    return std::string(CheckContinues(*other, *query.begun).message());
  }
  if (find(Eligibility::kEligible) != nullptr) return "ready";
  if (find(Eligibility::kExcluded) != nullptr) return "ready, but tried already";
  if (find(Eligibility::kContextTooSmall) != nullptr) {
    return fmt::format("ready, but with contexts of fewer than {} tokens", query.context_tokens);
  }
  return find(Eligibility::kUnusable) != nullptr ? "not answering or leaving" : "none registered";
}

}  // namespace

double LeastLoad(const std::vector<Candidate>& candidates) {
  if (candidates.empty()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& one : candidates) least = std::min(least, LoadOf(*one.worker));
  return least;
}

Candidates FindCandidates(const ClusterView& view, const RouteQuery& query) {
  Candidates found;
  if (query.wanted != v1::ROUTE_DISAGGREGATED) {
    found.unified = CandidatesOf(v1::WORKER_ROLE_UNIFIED, view, query);
  }
  if (query.wanted != v1::ROUTE_UNIFIED) {
    found.prefill = CandidatesOf(v1::WORKER_ROLE_PREFILL, view, query);
    found.decode = CandidatesOf(v1::WORKER_ROLE_DECODE, view, query);
  }
  // A request that continues on other workers goes to where its prompt is, not to where its session
  // was.
  if (query.session && !query.prompt_at) KeepToSession(*query.session, found);
  return found;
}

bool HasCandidates(const ClusterView& view, const RouteQuery& query) {
  const auto has = [&](v1::WorkerRole role) {
    return std::ranges::any_of(view.workers, [&](const WorkerView& worker) {
      return worker.role == role && EligibilityOf(worker, query) == Eligibility::kEligible;
    });
  };
  if (query.wanted != v1::ROUTE_DISAGGREGATED && has(v1::WORKER_ROLE_UNIFIED)) return true;
  return query.wanted != v1::ROUTE_UNIFIED && has(v1::WORKER_ROLE_PREFILL) &&
         has(v1::WORKER_ROLE_DECODE);
}

RouteQuery PreferReady(const ClusterView& view, const RouteQuery& query, TimePoint now) {
  for (const bool with_starting : {false, true}) {
    RouteQuery preferred = query;
    for (const WorkerView& worker : view.workers) {
      const bool is_avoided = worker.avoided_until > now;
      if (is_avoided || (worker.load.starting() && !with_starting)) {
        preferred.excluded.push_back(worker.id);
      }
    }
    if (HasCandidates(view, preferred)) return preferred;
  }
  return query;
}

absl::Status NoCandidates(const ClusterView& view, const RouteQuery& query) {
  const std::string unified = StateOf(v1::WORKER_ROLE_UNIFIED, view, query);
  const std::string prefill = StateOf(v1::WORKER_ROLE_PREFILL, view, query);
  const std::string decode = StateOf(v1::WORKER_ROLE_DECODE, view, query);
  if (query.wanted == v1::ROUTE_UNIFIED) {
    return Unavailable("route=unified needs a unified worker: {}", unified);
  }
  if (query.wanted == v1::ROUTE_DISAGGREGATED) {
    return Unavailable("route=disaggregated needs a prefill worker ({}) and a decode worker ({})",
                       prefill, decode);
  }
  return Unavailable("no route: unified workers: {}; prefill workers: {}; decode workers: {}",
                     unified, prefill, decode);
}

}  // namespace tandem
