#pragma once

#include <cstdint>
#include <vector>

#include "router/cluster/worker_view.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// All workers with a lease at one moment, ordered by name and then by incarnation: a value, never
// changed once published. Of several workers with one name all but the last are leaving
// (name_taken).
struct ClusterView {
  std::vector<WorkerView> workers;

  // The worker in this view; null when it is not there.
  const WorkerView* Find(const WorkerId& id) const;
  bool HasUsable(v1::WorkerRole role) const;
  // The decode workers that a prefill worker may send KV to.
  std::vector<v1::KvPeer> KvPeersOf(const WorkerView& prefill) const;
  // The routes that requests can take now.
  std::vector<v1::Route> Routes() const;
  // Prompt and output together, of the longest request that the usable workers can take on this
  // route; 0 when they cannot take it.
  int32_t MaxContextTokens(v1::Route route) const;
};

}  // namespace tandem
