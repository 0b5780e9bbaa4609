#include <algorithm>

#include "router/policy/policies.h"

namespace tandem {
namespace {

// One scale for both kinds of work: a step computes a few hundred prompt tokens in the time that
// it takes to decode a few running sequences, so a sequence weighs as much as this many prompt
// tokens. A guess until costs are measured; it only orders workers.
constexpr int64_t kSequenceWeight = 64;

double Load(const WorkerView& worker) {
  return static_cast<double>(worker.PendingPromptTokens() + kSequenceWeight * worker.Sequences());
}

class LeastLoadedPolicy final : public RoutingPolicy {
 protected:
  double Rank(const Candidate& candidate, const RouteQuery&) const override {
    return Load(*candidate.worker);
  }

  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    const double prefill = Load(*placement.prefill);
    if (placement.decode == nullptr) {
      return {.cost = prefill, .features = {{"unified_load", prefill}}};
    }
    const double decode = Load(*placement.decode);
    return {.cost = std::max(prefill, decode),
            .features = {{"prefill_load", prefill}, {"decode_load", decode}}};
  }
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewLeastLoadedPolicy() {
  return std::make_unique<LeastLoadedPolicy>();
}

}  // namespace tandem
