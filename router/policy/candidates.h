#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "router/cluster/cluster_view.h"
#include "router/policy/route_query.h"

namespace tandem {

// A worker that a request may be sent to.
struct Candidate {
  const WorkerView* worker;  // never null
  size_t position;           // among the candidates of its role, ordered by name
  size_t count;              // of the candidates of its role
};

// The workers that a request may be sent to, of the routes that it wants. They point into the
// snapshot that they come from.
struct Candidates {
  std::vector<Candidate> unified;
  std::vector<Candidate> prefill;
  std::vector<Candidate> decode;
  // Whether the candidates were cut down to the workers of the request's session.
  bool by_session = false;

  bool can_unify() const { return !unified.empty(); }
  bool can_disaggregate() const { return !prefill.empty() && !decode.empty(); }
};

// This is the one place that decides which workers may take a request: usable ones whose context
// holds it, that are not excluded and continue what the client has. Of these, the workers of the
// request's session alone, unless one of them is overloaded beside the others of its role
// (router/policy/bounded_load.h).
Candidates FindCandidates(const ClusterView& view, const RouteQuery& query);
// The lowest load (router/policy/worker_load.h) among candidates of one role; 0 without any.
double LeastLoad(const std::vector<Candidate>& candidates);
// Whether some wanted route has a candidate for each of its roles. A session does not change that.
bool HasCandidates(const ClusterView& view, const RouteQuery& query);

// Returns `query`, narrowed where that leaves a candidate: workers that are ready come before those
// that start, and those that start before those that are avoided.
RouteQuery PreferReady(const ClusterView& view, const RouteQuery& query, TimePoint now);

// UNAVAILABLE: says of each role that the wanted route needs why none of its workers can be used.
absl::Status NoCandidates(const ClusterView& view, const RouteQuery& query);

}  // namespace tandem
