#include <algorithm>
#include <cstddef>
#include <set>

#include "router/policy/bounded_load.h"
#include "router/policy/policies.h"
#include "router/policy/worker_load.h"

namespace tandem {
namespace {

// A hit counts only from this share of the prompt on. Requests that share less, such as a short
// system prompt, are spread by load: nothing else would keep them from gathering at one worker.
constexpr int32_t kLeastShare = 4;  // the share is 1 / kLeastShare: a quarter
// The most workers that may be marked as overloaded. Workers come and go; beyond this number all
// marks are dropped at once.
constexpr size_t kMostMarks = 4096;

// Orders loads by values below 1, so that the load only decides among equal hits.
double TieBreak(double load) { return load / (load + 4096); }

class PrefixAffinityPolicy final : public RoutingPolicy {
 protected:
  void Begin(const Candidates& candidates, const RouteQuery&) override {
    if (overloaded_.size() > kMostMarks) overloaded_.clear();
    for (const auto* role : {&candidates.unified, &candidates.prefill}) MarkOverloaded(*role);
  }

  double Rank(const Candidate& candidate, const RouteQuery& query) const override {
    const WorkerView& worker = *candidate.worker;
    const double load = LoadOf(worker);
    if (worker.role == v1::WORKER_ROLE_DECODE) return load;
    return UncachedTokens(worker, query) + TieBreak(load);
  }

  PlacementScore Score(const Placement& placement, const RouteQuery& query) const override {
    const double uncached = UncachedTokens(*placement.prefill, query);
    const double prefill = LoadOf(*placement.prefill);
    PlacementScore score;
    score.features = {
        {"cached_tokens", static_cast<double>(query.CachedTokens(placement.prefill->id))},
        {"overloaded", overloaded_.contains(placement.prefill->id) ? 1.0 : 0.0}};
    double load = prefill;
    if (placement.decode == nullptr) {
      score.features.push_back({"unified_load", prefill});
    } else {
      const double decode = LoadOf(*placement.decode);
      load = std::max(prefill, decode);
      score.features.push_back({"prefill_load", prefill});
      score.features.push_back({"decode_load", decode});
    }
    score.cost = uncached + TieBreak(load);
    return score;
  }

 private:
  void MarkOverloaded(const std::vector<Candidate>& role) {
    const double least = LeastLoad(role);
    for (const Candidate& one : role) {
      const double load = LoadOf(*one.worker);
      if (IsOverloaded(load, least)) {
        overloaded_.insert(one.worker->id);
      } else if (IsRelieved(load, least)) {
        overloaded_.erase(one.worker->id);
      }
    }
  }

  // The tokens of the prompt that the worker has yet to compute. A hit is subtracted only where it
  // counts for this worker.
  double UncachedTokens(const WorkerView& worker, const RouteQuery& query) const {
    const int32_t cached = query.CachedTokens(worker.id);
    const bool counts =
        int64_t{cached} * kLeastShare >= query.prompt_tokens && !overloaded_.contains(worker.id);
    return query.prompt_tokens - (counts ? cached : 0);
  }

  std::set<WorkerId> overloaded_;
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewPrefixAffinityPolicy() {
  return std::make_unique<PrefixAffinityPolicy>();
}

}  // namespace tandem
