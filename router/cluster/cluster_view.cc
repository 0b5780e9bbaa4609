#include "router/cluster/cluster_view.h"

#include <algorithm>

#include "router/cluster/agreement.h"

namespace tandem {

const WorkerView* ClusterView::Find(const WorkerId& id) const {
  const auto found = std::ranges::lower_bound(workers, id, {}, &WorkerView::id);
  return found == workers.end() || found->id != id ? nullptr : &*found;
}

bool ClusterView::HasUsable(v1::WorkerRole role) const {
  return std::any_of(workers.begin(), workers.end(), [role](const WorkerView& worker) {
    return worker.role == role && worker.usable();
  });
}

std::vector<v1::KvPeer> ClusterView::KvPeersOf(const WorkerView& prefill) const {
  std::vector<v1::KvPeer> peers;
  for (const WorkerView& worker : workers) {
    if (worker.role != v1::WORKER_ROLE_DECODE || worker.name_taken) continue;
    // A leaving decode worker need not agree with a prefill worker that registered later.
    if (worker.info->model_fingerprint != prefill.info->model_fingerprint) continue;
    if (!CheckCanHandOver(prefill, worker).ok()) continue;
    v1::KvPeer& peer = peers.emplace_back();
    peer.set_name(worker.id.name);
    peer.set_epoch(worker.id.incarnation);
    peer.set_data_address(worker.info->data_address);
  }
  return peers;
}

std::vector<v1::Route> ClusterView::Routes() const {
  std::vector<v1::Route> routes;
  if (HasUsable(v1::WORKER_ROLE_UNIFIED)) routes.push_back(v1::ROUTE_UNIFIED);
  if (HasUsable(v1::WORKER_ROLE_PREFILL) && HasUsable(v1::WORKER_ROLE_DECODE)) {
    routes.push_back(v1::ROUTE_DISAGGREGATED);
  }
  return routes;
}

int32_t ClusterView::MaxContextTokens(v1::Route route) const {
  const auto longest = [this](v1::WorkerRole role) {
    int32_t most = 0;
    for (const WorkerView& worker : workers) {
      if (worker.role != role || !worker.usable()) continue;
      most = std::max(most, worker.info->max_context_tokens);
    }
    return most;
  };
  const int32_t unified = longest(v1::WORKER_ROLE_UNIFIED);
  const int32_t disaggregated =
      std::min(longest(v1::WORKER_ROLE_PREFILL), longest(v1::WORKER_ROLE_DECODE));
  if (route == v1::ROUTE_UNIFIED) return unified;
  return route == v1::ROUTE_DISAGGREGATED ? disaggregated : std::max(unified, disaggregated);
}

}  // namespace tandem
