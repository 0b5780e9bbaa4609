#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "router/cluster/cluster_view.h"
#include "router/policy/route_query.h"

namespace tandem {

// The workers that a request should not be sent to, and until when.
// Thread: one at a time.
class Exclusions {
 public:
  enum class Until : uint8_t {
    kReport,        // its next report: it may have room, or live again
    kNoOtherPlace,  // its next report, and no other worker can take the request, not even by waiting
    kAttempts,      // until Relax is called, or for ever
  };

  // Excludes a worker; replaces an exclusion that it has already.
  void Add(const WorkerId& id, Until until, TimePoint now);

  // A hand-off from `prefill` to `decode` failed, and either may be at fault: that both send
  // heartbeats says nothing of the link between them, and a decode worker that receives no KV looks
  // idle. The prefill worker has the prompt and may send it to another decode worker, unless it
  // failed with one before and another worker can prefill. `query`: of the request.
  void AddHandOff(const WorkerId& prefill, const WorkerId& decode, const ClusterView& view,
                  const RouteQuery& query, TimePoint now);

  // The worker that was added last refused because it was asked not to queue the request: it may be
  // asked again, to queue it, when no other worker is left.
  void MarkLatestNoWait();
  // The request has queued at a worker in vain: workers that refused it without queueing it are
  // from now on not asked again.
  void KeepNoWait();
  // Forgets the workers that refused without queueing the request. False when there was none.
  bool ClearNoWait();

  // Workers that were full may have room by now: their exclusion ends with their next report.
  void Relax();

  // Returns `query` with the workers that are excluded now added to those that it excludes.
  RouteQuery Apply(const ClusterView& view, RouteQuery query) const;
  // Whether some worker can take the request that is neither excluded nor `id`.
  bool HasPlaceWithout(const WorkerId& id, const ClusterView& view, const RouteQuery& query) const;

 private:
  struct Exclusion {
    WorkerId id;
    TimePoint since;
    Until until = Until::kReport;
    bool no_wait = false;  // it has no room now; whether it would have had room soon is not known
    std::optional<WorkerId> unreached_by;  // the prefill worker whose hand-off to it failed
  };

  std::vector<Exclusion> list_;
};

}  // namespace tandem
