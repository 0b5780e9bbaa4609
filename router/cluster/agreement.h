#pragma once

#include "absl/status/status.h"
#include "router/cluster/worker_view.h"

namespace tandem {

// Whether a prefill worker can send KV to a decode worker: their wire versions are equal, and the
// layout of the one can be converted to that of the other. FAILED_PRECONDITION names both values.
absl::Status CheckCanHandOver(const WorkerRef& prefill, const WorkerRef& decode);

// Whether `joining` may serve beside `other`: a request gets the same tokens from either of them,
// and KV can go from one to the other if they have the roles for that. A leaving worker takes
// nothing new, so no worker needs to agree with it. The hash of a worker's weights is compared once
// the worker has loaded them and knows it. FAILED_PRECONDITION names both values.
absl::Status CheckAgrees(const WorkerView& joining, const WorkerView& other);

}  // namespace tandem
