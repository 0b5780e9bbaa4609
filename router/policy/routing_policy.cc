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

}  // namespace

absl::StatusOr<RouteDecision> RoutingPolicy::Choose(const ClusterView& view,
                                                    const RouteQuery& query) {
  const Candidates candidates = FindCandidates(view, query);
  Begin(candidates, query);
  const std::vector<Placement> placements =
      Enumerate(candidates, query, [&](const Candidate& one) { return Rank(one, query); });
  if (placements.empty()) return NoCandidates(view, query);
  Prepare(placements, query);
  std::vector<Option> options;
  std::string refusal;
  for (const Placement& placement : placements) {
    PlacementScore score = Score(placement, query);
    if (!score.ineligible.empty()) {
      refusal = std::move(score.ineligible);
    } else {
      options.push_back({placement, std::move(score)});
    }
  }
  if (options.empty()) {
    return Unavailable("the routing policy refused all {} placements, the last one because {}",
                       placements.size(), refusal);
  }
  std::stable_sort(options.begin(), options.end(),
                   [](const Option& a, const Option& b) { return a.score.cost < b.score.cost; });
  Verdict verdict = Pick(options, query);
  RouteDecision decision;
  decision.placements = placements.size();
  decision.basis = verdict.basis;
  decision.reason = std::move(verdict.reason);
  // The option that is taken is among those that are kept.
  const size_t kept = std::min(options.size(), RouteDecision::kMostConsidered);
  if (verdict.option >= kept) std::swap(options[kept - 1], options[verdict.option]);
  const size_t taken = std::min(verdict.option, kept - 1);
  for (size_t i = 0; i < kept; ++i) {
    decision.considered.push_back(ToScored(options[i].placement, std::move(options[i].score)));
  }
  static_cast<ScoredPlacement&>(decision) = decision.considered[taken];
  if (candidates.by_session && decision.reason.empty()) {
    decision.reason = "the latest request of its session ran there";
  }
  return decision;
}

}  // namespace tandem
