#include "router/cluster/cluster_view.h"

#include <algorithm>

#include "router/cluster/agreement.h"

namespace tandem {

int32_t WorkerView::Sequences() const {
  return std::max(load.running() + load.waiting(), charged.sequences);
}

int64_t WorkerView::PendingPromptTokens() const {
  return std::max<int64_t>(load.waiting_prompt_tokens(), charged.prompt_tokens);
}

int32_t WorkerView::AvailableBlocks() const { return load.free_blocks() + load.kv().idle_blocks(); }

bool ClusterView::HasUsable(v1::WorkerRole role) const {
  return std::any_of(workers.begin(), workers.end(), [role](const WorkerView& worker) {
    return worker.role == role && worker.usable();
  });
}

std::vector<v1::KvPeer> ClusterView::KvPeersOf(const WorkerView& prefill) const {
  std::vector<v1::KvPeer> peers;
  for (const WorkerView& worker : workers) {
    if (worker.role != v1::WORKER_ROLE_DECODE || worker.name_taken) continue;
    // One that is leaving need not have agreed with a prefill worker that came since.
    if (worker.model_fingerprint != prefill.model_fingerprint) continue;
    if (!CheckCanHandOver(prefill, worker).ok()) continue;
    v1::KvPeer& peer = peers.emplace_back();
    peer.set_name(worker.id.name);
    peer.set_epoch(worker.id.incarnation);
    peer.set_data_address(worker.data_address);
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
      if (worker.role == role && worker.usable()) most = std::max(most, worker.max_context_tokens);
    }
    return most;
  };
  const int32_t unified = longest(v1::WORKER_ROLE_UNIFIED);
  const int32_t disaggregated =
      std::min(longest(v1::WORKER_ROLE_PREFILL), longest(v1::WORKER_ROLE_DECODE));
  if (route == v1::ROUTE_UNIFIED) return unified;
  return route == v1::ROUTE_DISAGGREGATED ? disaggregated : std::max(unified, disaggregated);
}

std::string_view Name(v1::WorkerRole role) {
  switch (role) {
    case v1::WORKER_ROLE_UNIFIED:
      return "unified";
    case v1::WORKER_ROLE_PREFILL:
      return "prefill";
    case v1::WORKER_ROLE_DECODE:
      return "decode";
    default:  // protobuf enums are open: a newer peer may send more
      return "unknown";
  }
}

}  // namespace tandem
