#include "router/policy/routing_policy.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {
namespace {

// Of the candidates only the prefill worker that has the prompt already; none if it is no
// candidate.
std::vector<Candidate> HolderOfPrompt(const Candidates& candidates, const RouteQuery& query) {
  if (!candidates.can_disaggregate() || !query.prompt_at) return {};
  for (const Candidate& one : candidates.prefill) {
    if (one.worker->id == *query.prompt_at) return {one};
  }
  return {};
}

// Keeps the most likely stages of a prediction, because they are compared with what comes true.
ScoredPlacement ToScored(const Placement& placement, PlacementScore score) {
  if (score.prediction) score.prediction = MostLikely(*score.prediction);
  return {.route = placement.route(),
          .prefill = placement.prefill->id,
          .decode = placement.decode == nullptr ? WorkerId() : placement.decode->id,
          .score = std::move(score)};
}

// A request that waits at a worker may stay there, however that worker ranks.
void KeepWaiting(const std::vector<Candidate>& candidates, const RouteQuery& query,
                 std::vector<const WorkerView*>& shortlist) {
  if (query.waits_at.empty()) return;
  for (const Candidate& one : candidates) {
    if (query.WaitingAt(one.worker->id) == nullptr) continue;
    if (std::ranges::find(shortlist, one.worker) == shortlist.end()) shortlist.back() = one.worker;
  }
}

// The number of workers that are gone and still remembered. Beyond it all are forgotten at once.
constexpr size_t kMostForgotten = 1024;

}  // namespace

std::vector<const WorkerView*> RoutingPolicy::Shortlist(const std::vector<Candidate>& candidates,
                                                        const RouteQuery& query) const {
  struct Ranked {
    double rank;
    int64_t room;
    size_t position;  // its index among the candidates
  };
  const auto taken_at = [&](const Ranked& one) {
    const auto taken = taken_.find(candidates[one.position].worker->id);
    return taken == taken_.end() ? uint64_t{0} : taken->second;
  };
  // When a worker was taken last is looked up only for workers that are alike.
  const auto before = [&](const Ranked& a, const Ranked& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.room != b.room) return a.room > b.room;
    const uint64_t a_taken = taken_at(a);
    const uint64_t b_taken = taken_at(b);
    return a_taken != b_taken ? a_taken < b_taken : a.position < b.position;
  };
  std::vector<Ranked> ranked;
  ranked.reserve(candidates.size());
  for (const Candidate& one : candidates) {
    ranked.push_back({Rank(one, query), one.worker->AvailableBlocks(), ranked.size()});
  }
  const auto end = ranked.begin() + static_cast<ptrdiff_t>(std::min(kShortlist, ranked.size()));
  std::partial_sort(ranked.begin(), end, ranked.end(), before);
  std::vector<const WorkerView*> shortlist;
  for (auto one = ranked.begin(); one != end; ++one) {
    shortlist.push_back(candidates[one->position].worker);
  }
  KeepWaiting(candidates, query, shortlist);
  return shortlist;
}

std::vector<Placement> RoutingPolicy::Enumerate(const Candidates& candidates,
                                                const RouteQuery& query) const {
  const std::vector<Candidate> holder = HolderOfPrompt(candidates, query);
  std::vector<Placement> placements;
  if (holder.empty()) {
    for (const WorkerView* worker : Shortlist(candidates.unified, query)) {
      placements.push_back({.prefill = worker});
    }
  }
  const std::vector<const WorkerView*> decode = Shortlist(candidates.decode, query);
  for (const WorkerView* one : Shortlist(holder.empty() ? candidates.prefill : holder, query)) {
    for (const WorkerView* other : decode) placements.push_back({.prefill = one, .decode = other});
  }
  return placements;
}

void RoutingPolicy::NoteTaken(const RouteDecision& decision, size_t num_workers) {
  if (taken_.size() > num_workers + kMostForgotten) taken_.clear();
  ++decisions_;
  taken_[decision.prefill] = decisions_;
  if (decision.route == v1::ROUTE_DISAGGREGATED) taken_[decision.decode] = decisions_;
}

absl::StatusOr<RouteDecision> RoutingPolicy::Choose(const ClusterView& view,
                                                    const RouteQuery& query) {
  absl::StatusOr<RouteDecision> decision = Decide(view, query);
  if (!decision.ok()) return decision;
  NoteTaken(*decision, view.workers.size());
  OnTaken(*decision, query);
  return decision;
}

absl::StatusOr<RouteDecision> RoutingPolicy::Reconsider(const ClusterView& view,
                                                        const RouteQuery& query) {
  return Decide(WithoutWaiting(view, query), query);
}

absl::StatusOr<RouteDecision> RoutingPolicy::Decide(const ClusterView& view,
                                                    const RouteQuery& query) {
  const Candidates candidates = FindCandidates(view, query);
  Begin(candidates, query);
  const std::vector<Placement> placements = Enumerate(candidates, query);
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
  // The option that is taken is always among the options that are kept.
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
