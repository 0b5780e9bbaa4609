#pragma once

#include "absl/status/status.h"
#include "router/cluster/cluster_view.h"

namespace tandem {

// Whether KV can go from a prefill to a decode worker, by its wire version and layout.
// FAILED_PRECONDITION names both values.
absl::Status CheckCanHandOver(const WorkerView& prefill, const WorkerView& decode);

// Whether `joining` may serve beside `other`: a request gets the same tokens of whichever it is
// sent to, and KV can go from one to the other if they have the roles for that. With a worker that
// is leaving nobody needs to agree: it takes nothing new. The hash of a worker's weights is compared
// once it is known, which is when the worker has loaded them. FAILED_PRECONDITION names both values.
absl::Status CheckAgrees(const WorkerView& joining, const WorkerView& other);

}  // namespace tandem
