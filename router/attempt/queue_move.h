#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "router/cluster/cluster_view.h"
#include "router/policy/placement.h"

namespace tandem {

// Decides when a request that is queued at a worker should leave it for another route that has
// become free. Refusals send requests to the worker that queues them; without a move they would
// stay in that queue while the workers that refused them have long been idle. A move loses what the
// worker may have computed of the prompt, so it is made only where the wait is likely to be much
// longer: the worker has had the request for two heartbeats without sending an event and reports a
// queue, and the other workers have at most half its sequences. The blocks that a decode worker
// reports as free may be promised to the sequences that it decodes. So the request keeps its place
// in the queue until the decode worker has reserved blocks for it, and a refusal costs it nothing.
class QueueMove {
 public:
  // The request was sent to a worker that may queue it.
  void OnQueued(TimePoint now) {
    queued_since_ = now;
    asked_.reset();
  }
  // Another attempt asks for blocks while the request stays where it is. `route`: the route on
  // which it is to leave a queue; nothing if the attempt has another reason.
  void OnAsked(std::optional<RouteDecision> route) { asked_ = std::move(route); }
  bool is_asked() const { return asked_.has_value(); }
  // The request stays where it waits: no other route is better now, or the other route refused the
  // blocks. It waits again before it looks for another one, so that under overload not every report
  // has a route chosen for every request.
  void OnStays(TimePoint now) { OnQueued(now); }
  // The route for which OnAsked was called, when its blocks have been reserved.
  std::optional<RouteDecision> TakeAsked() { return std::exchange(asked_, std::nullopt); }
  // Whether the request has waited so long that its worker has reported since, unless it reports
  // late.
  bool HasWaited(TimePoint now, Duration heartbeat) const {
    return queued_since_ != kNoDeadline && now - queued_since_ >= 2 * heartbeat;
  }
  // Whether the request has waited long enough at `worker` that another route should be looked for.
  bool IsDue(const WorkerView& worker, TimePoint now, Duration heartbeat) const;
  // Whether any other workers of `view` make up a route on which IsBetter can be true. It is cheap,
  // so that under overload not every report has a new route chosen for every request that waits.
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
  std::optional<RouteDecision> asked_;
  int32_t moves_ = 0;
};

}  // namespace tandem
