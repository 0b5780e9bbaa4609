#pragma once

#include "base/clock.h"
#include "router/cluster/worker_view.h"
#include "router/ledger/worker_ledger.h"
#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// What predictions for one worker need besides the worker itself.
struct QueueContext {
  TimePoint now;
  double output_tokens = 1;  // expected of the waiting requests that other routers sent
  // Only what was sent before this part counts as waiting; null: all that was sent.
  const PartInFlight* before = nullptr;
  // What messages take from the decision to the first token, computing aside; 0: not known.
  double messages_ms = 0;
};

// The queues of a worker whose costs are known, for the latency model: the requests of this router
// and, as groups, those of other routers. Requests that are alike share a group, so that there are
// at most kMostGroups of each kind, however many requests there are. `ledger`: null where there is
// nothing. `worker` outlives the state.
inline constexpr int kMostGroups = 8;
WorkerState QueuesOf(const WorkerView& worker, const WorkerLedger* ledger,
                     const QueueContext& context);

}  // namespace tandem
