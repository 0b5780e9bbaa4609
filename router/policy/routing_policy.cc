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

RouteDecision ToDecision(const Placement& placement, PlacementScore score) {
  return {.route = placement.route(),
          .prefill = placement.prefill->id,
          .decode = placement.decode == nullptr ? WorkerId() : placement.decode->id,
          .score = std::move(score)};
}

}  // namespace

absl::StatusOr<RouteDecision> RoutingPolicy::Choose(const ClusterView& view,
                                                    const RouteQuery& query) {
  const Candidates candidates = FindCandidates(view, query);
  Begin(candidates, query);
  const std::vector<Placement> placements =
      Enumerate(candidates, query, [&](const Candidate& one) { return Rank(one, query); });
  if (placements.empty()) return NoCandidates(view, query);
  const Placement* best = nullptr;
  PlacementScore best_score;
  std::string refusal;
  for (const Placement& placement : placements) {
    PlacementScore score = Score(placement, query);
    if (!score.ineligible.empty()) {
      refusal = std::move(score.ineligible);
    } else if (best == nullptr || score.cost < best_score.cost) {
      best = &placement;
      best_score = std::move(score);
    }
  }
  if (best != nullptr) return ToDecision(*best, std::move(best_score));
  return Unavailable("the routing policy refused all {} placements, the last one because {}",
                     placements.size(), refusal);
}

}  // namespace tandem
