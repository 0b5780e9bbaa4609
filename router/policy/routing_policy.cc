#include "router/policy/routing_policy.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {
namespace {

// The workers of one role that rank first, best first.
using Shortlist = std::vector<const WorkerView*>;

template <typename Rank>
Shortlist ShortlistOf(const std::vector<Candidate>& candidates, const Rank& rank) {
  struct Ranked {
    double rank;
    const WorkerView* worker;
  };
  std::vector<Ranked> ranked;
  for (const Candidate& one : candidates) ranked.push_back({rank(one), one.worker});
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    return a.worker->AvailableBlocks() > b.worker->AvailableBlocks();
  });
  Shortlist shortlist;
  for (const Ranked& one : ranked) {
    if (shortlist.size() == RoutingPolicy::kShortlist) break;
    shortlist.push_back(one.worker);
  }
  return shortlist;
}

// Only the worker that has the prompt already, if it is a candidate.
std::vector<Candidate> HolderOfPrompt(const Candidates& candidates, const RouteQuery& query) {
  if (!candidates.can_disaggregate() || !query.prompt_at) return {};
  for (const Candidate& one : candidates.prefill) {
    if (one.worker->id == *query.prompt_at) return {one};
  }
  return {};
}

template <typename Rank>
std::vector<Placement> Enumerate(const Candidates& candidates, const RouteQuery& query,
                                 const Rank& rank) {
  const std::vector<Candidate> holder = HolderOfPrompt(candidates, query);
  std::vector<Placement> placements;
  if (holder.empty()) {
    for (const WorkerView* worker : ShortlistOf(candidates.unified, rank)) {
      placements.push_back({.prefill = worker});
    }
  }
  const Shortlist decode = ShortlistOf(candidates.decode, rank);
  for (const WorkerView* one : ShortlistOf(holder.empty() ? candidates.prefill : holder, rank)) {
    for (const WorkerView* other : decode) placements.push_back({.prefill = one, .decode = other});
  }
  return placements;
}

ScoredPlacement ToScored(const Placement& placement, PlacementScore score) {
  return {.route = placement.route(),
          .prefill = placement.prefill->id,
          .decode = placement.decode == nullptr ? WorkerId() : placement.decode->id,
          .score = std::move(score)};
}

// A placement that may be taken.
struct Eligible {
  const Placement* placement;
  PlacementScore score;
};

// The placements in `eligible`, lowest cost first, become those of the decision.
RouteDecision ToDecision(std::vector<Eligible> eligible, size_t num_placements) {
  const size_t kept = std::min(eligible.size(), RouteDecision::kMostConsidered);
  RouteDecision decision;
  decision.placements = num_placements;
  for (size_t i = 0; i < kept; ++i) {
    decision.considered.push_back(ToScored(*eligible[i].placement, std::move(eligible[i].score)));
  }
  static_cast<ScoredPlacement&>(decision) = decision.considered.front();
  return decision;
}

}  // namespace

absl::StatusOr<RouteDecision> RoutingPolicy::Choose(const ClusterView& view,
                                                    const RouteQuery& query) {
  const Candidates candidates = FindCandidates(view, query);
  Begin(candidates, query);
  const std::vector<Placement> placements =
      Enumerate(candidates, query, [&](const Candidate& one) { return Rank(one, query); });
  if (placements.empty()) return NoCandidates(view, query);
  std::vector<Eligible> eligible;
  std::string refusal;
  for (const Placement& placement : placements) {
    PlacementScore score = Score(placement, query);
    if (!score.ineligible.empty()) {
      refusal = std::move(score.ineligible);
    } else {
      eligible.push_back({&placement, std::move(score)});
    }
  }
  if (eligible.empty()) {
    return Unavailable("the routing policy refused all {} placements, the last one because {}",
                       placements.size(), refusal);
  }
  std::stable_sort(eligible.begin(), eligible.end(), [](const Eligible& a, const Eligible& b) {
    return a.score.cost < b.score.cost;
  });
  return ToDecision(std::move(eligible), placements.size());
}

}  // namespace tandem
