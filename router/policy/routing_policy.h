#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "router/cluster/cluster_view.h"
#include "router/policy/candidates.h"
#include "router/policy/placement.h"
#include "router/policy/route_query.h"

namespace tandem {

// Answers where a request goes, from one snapshot; owns no request and calls no worker. Choose
// finds the workers that may take the request, enumerates the placements on them and takes the one
// with the lowest cost; a policy only scores placements (router/policy/round_robin.cc is a short
// example), and may prefer another one than the cheapest (Pick). Thread: the router's loop.
class RoutingPolicy {
 public:
  // Prefill and decode workers are paired only among this many of each role, by Rank, so that a
  // decision among a thousand workers scores at most 16 + 16 * 16 placements.
  static constexpr size_t kShortlist = 16;

  virtual ~RoutingPolicy() = default;

  // Chooses a placement. Equal costs go to unified, which moves nothing, then to the workers that
  // rank first; of workers that rank alike, the one that was taken the longest time ago is first.
  // Where the worker that has the prompt can prefill and another can decode, only such placements
  // count. UNAVAILABLE says which role is missing for the wanted route, or why the policy refused
  // all.
  absl::StatusOr<RouteDecision> Choose(const ClusterView& view, const RouteQuery& query);
  // Returns what Choose would for a request that waits somewhere (RouteQuery::waits_at) and may
  // stay there. Later decisions are as if it had not been called.
  absl::StatusOr<RouteDecision> Reconsider(const ClusterView& view, const RouteQuery& query);

 protected:
  // A decision begins; Rank and Score are asked about these candidates.
  virtual void Begin(const Candidates& candidates, const RouteQuery& query) {
    (void)candidates;
    (void)query;
  }
  // Orders the workers of one role, lowest first; among equals the one with more room is first.
  virtual double Rank(const Candidate& candidate, const RouteQuery& query) const = 0;
  // `placements` are about to be scored.
  virtual void Prepare(std::span<const Placement> placements, const RouteQuery& query) {
    (void)placements;
    (void)query;
  }
  virtual PlacementScore Score(const Placement& placement, const RouteQuery& query) const = 0;

  // A placement that may be taken.
  struct Option {
    Placement placement;
    PlacementScore score;
  };
  struct Verdict {
    size_t option = 0;
    RouteDecision::Basis basis = RouteDecision::Basis::kLowestCost;
    std::string reason = {};  // RouteDecision::reason
  };
  // Which option is taken; there is at least one, and the first has the lowest cost.
  virtual Verdict Pick(std::span<const Option> options, const RouteQuery& query) const {
    (void)options;
    (void)query;
    return {};
  }
  // Choose returns `decision`, which was begun last: the request goes there.
  virtual void OnTaken(const RouteDecision& decision, const RouteQuery& query) {
    (void)decision;
    (void)query;
  }

 private:
  // The workers of one role that rank first, best first.
  std::vector<const WorkerView*> Shortlist(const std::vector<Candidate>& candidates,
                                           const RouteQuery& query) const;
  std::vector<Placement> Enumerate(const Candidates& candidates, const RouteQuery& query) const;
  absl::StatusOr<RouteDecision> Decide(const ClusterView& view, const RouteQuery& query);
  void NoteTaken(const RouteDecision& decision, size_t num_workers);

  uint64_t decisions_ = 0;
  // By worker, the number of the latest decision that took it; workers that were never taken are
  // missing.
  absl::flat_hash_map<WorkerId, uint64_t> taken_;
};

}  // namespace tandem
