#pragma once

#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "router/cluster/worker_view.h"
#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// The links of a prefill worker to its peers, by the peer's name: for each peer the link in use or,
// where none was used yet, the fastest one. Contains only links that were measured and have not
// failed. The names point into the worker's report.
absl::flat_hash_map<std::string_view, LinkModel> LinksOf(const WorkerView& prefill);

// The shape of the worker's KV, from which the time of its transfer is predicted. Nothing where the
// worker did not report it.
std::optional<KvTransferShape> KvOf(const WorkerView& prefill);

}  // namespace tandem
