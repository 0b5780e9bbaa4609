#pragma once

#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "router/cluster/worker_view.h"
#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// The links of a prefill worker to its peers, by the peer's name: of each peer the link in use, or
// where none was used yet, the fastest one. Only links that were measured and have not failed. The
// names point into the worker's report.
absl::flat_hash_map<std::string_view, LinkModel> LinksOf(const WorkerView& prefill);

// How the worker's KV is made. Nothing where the worker did not say.
std::optional<KvTransferShape> KvOf(const WorkerView& prefill);

}  // namespace tandem
