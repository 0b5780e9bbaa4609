#pragma once

#include <cstdint>

#include "base/clock.h"
#include "router/cluster/cluster_view.h"
#include "router/policy/placement.h"

namespace tandem {

// Decides when a request that is queued at a worker should leave it for another route that has
// become free. Refusals send requests to the worker that queues them; without a move they would stay
// in that queue while the workers that refused them have long been idle.
// A move loses what the worker may have computed of the prompt, so it is made only where the wait is
// likely to be much longer: the worker has had the request for two heartbeats without sending an
// event and reports a queue, and the other workers have at most half its sequences.
class QueueMove {
 public:
  // The request was sent to a worker that may queue it.
  void OnQueued(TimePoint now) { queued_since_ = now; }
  // Whether the request has waited long enough at `worker` that another route should be looked for.
  bool IsDue(const WorkerView& worker, TimePoint now, Duration heartbeat) const;
  // Whether any other workers of `view` make up a route on which IsBetter can be true. It is cheap, so
  // that under overload not every report has a new route chosen for every request that waits.
  static bool MayFindBetter(const WorkerView& worker, const ClusterView& view, int32_t width,
                            int32_t context_tokens);
  // Whether a request with `width` sequences is better off with `other`, whose workers are in
  // `view`, than at `worker`.
  static bool IsBetter(const WorkerView& worker, const RouteDecision& other,
                       const ClusterView& view, int32_t width, int32_t context_tokens);
  void OnMoved() { ++moves_; }

 private:
  static constexpr int32_t kMaxMoves = 4;  // so that a request is not moved for ever

  TimePoint queued_since_ = kNoDeadline;
  int32_t moves_ = 0;
};

}  // namespace tandem
