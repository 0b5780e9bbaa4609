#pragma once

#include <optional>

#include "router/cluster/worker_view.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// The workers of one attempt: prefill and decode on one unified worker, or on one worker each.
struct AttemptWorkers {
  WorkerRef prefill;
  std::optional<WorkerRef> decode = std::nullopt;  // disaggregated only

  v1::Route route() const { return decode ? v1::ROUTE_DISAGGREGATED : v1::ROUTE_UNIFIED; }
  // The worker that computes all tokens but the first.
  const WorkerRef& output() const { return decode ? *decode : prefill; }
};

}  // namespace tandem
