#include "router/policy/route_query.h"

#include <algorithm>
#include <utility>

namespace tandem {

int32_t RouteQuery::CachedTokens(const WorkerId& worker) const {
  if (hits == nullptr) return 0;
  const auto found = std::ranges::lower_bound(*hits, worker, {}, &WorkerHit::worker);
  return found != hits->end() && found->worker == worker ? found->tokens : 0;
}

const WaitingPart* RouteQuery::WaitingAt(const WorkerId& worker) const {
  const auto found = std::ranges::find(waits_at, worker, &WaitingPart::worker);
  return found == waits_at.end() ? nullptr : &*found;
}

ClusterView WithoutWaiting(ClusterView view, const RouteQuery& query) {
  for (WorkerView& worker : view.workers) {
    const WaitingPart* const waiting = query.WaitingAt(worker.id);
    if (waiting == nullptr) continue;
    const WorkerCharge& own = waiting->charge;
    worker.charged.sequences = std::max(0, worker.charged.sequences - own.sequences);
    worker.charged.prompt_tokens =
        std::max<int64_t>(0, worker.charged.prompt_tokens - own.prompt_tokens);
    auto load = std::make_shared<v1::WorkerLoad>(*worker.load);
    load->set_waiting(std::max(0, load->waiting() - own.sequences));
    load->set_waiting_prompt_tokens(
        std::max<int64_t>(0, load->waiting_prompt_tokens() - own.prompt_tokens));
    worker.load = LoadReport(std::move(load));
  }
  return view;
}

}  // namespace tandem
