#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "router/cluster/cluster_view.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem {

struct ClusterOptions {
  std::string model;  // the only model that is served
  // The lease of a worker is so short that one that was killed is missed within 3 s.
  Duration lease = std::chrono::milliseconds(2500);
  Duration heartbeat = std::chrono::milliseconds(500);
  size_t max_workers = 1024;
};

// The workers that have a lease, their latest reports, and the load that this router has charged
// them with. Views never change and share the reports. A change is made in place while no view is
// held, and otherwise in a copy: each request looks once and changes charges several times.
// Thread-safe.
class Cluster {
 public:
  Cluster(ClusterOptions options, const Clock& clock);

  // Adds a worker, or renews its registration. A name that is taken goes to another process only
  // when its holder has been silent for two heartbeats or is leaving, and only to a younger
  // incarnation. A silent holder is then lost (TakeReplaced); a leaving one keeps its lease beside
  // the younger one.
  // NOT_FOUND: this router serves another model. FAILED_PRECONDITION: the worker does not agree
  // with one of the workers that are not leaving (router/cluster/agreement.h), or may not have the
  // name. INVALID_ARGUMENT: a field is missing, too long or out of range (registration_check.h).
  // RESOURCE_EXHAUSTED: there are max_workers already.
  // No message contains what only another worker knows: its incarnation or its model's fingerprint.
  absl::Status Register(const v1::RegisterRequest& request);
  // Renews a lease and takes the worker's report. NOT_FOUND when there is no lease, or only one of
  // another incarnation. INVALID_ARGUMENT for a load that is out of range: the lease is not
  // renewed. FAILED_PRECONDITION when the worker has loaded other weights than the workers that
  // serve already: it is dropped. A worker that was deregistered and reports that it is not leaving
  // gets requests again, from its second heartbeat on.
  absl::Status Heartbeat(const v1::HeartbeatRequest& request);
  // The first call for a worker says that it is leaving: it gets nothing new and keeps its lease
  // while it finishes its requests. The second call says that it is gone. False when there is no
  // such worker.
  bool Deregister(std::string_view name, uint64_t incarnation);

  // `changed` is called after a worker has registered, reported, begun to leave or gone, on the
  // thread that reported it, with no lock held. Empty: there is no listener.
  void SetListener(std::function<void()> changed);

  // A call failed to reach this worker: nothing is sent to it until its next heartbeat.
  void Suspect(const WorkerId& id);

  // A hand-off to this worker failed: for kAvoided, requests prefer other workers.
  static constexpr Duration kAvoided = std::chrono::seconds(10);
  void Avoid(const WorkerId& id);

  // Whether a worker answers pings. Nothing is sent to one that cannot be reached, though its
  // heartbeats arrive.
  enum class Reach : bool { kLost, kRegained };
  void SetReach(const WorkerId& id, Reach reach);

  // Load that the worker's next report may not contain yet: charged when a request is sent there
  // and discharged when that part of the request has ended. Unknown workers are ignored.
  void Charge(const WorkerId& id, const WorkerCharge& charge);
  void Discharge(const WorkerId& id, const WorkerCharge& charge);

  // This router was stalled for the time `stall` and could read no heartbeats: all leases last
  // longer by as much.
  void Postpone(Duration stall);
  // Drops the workers whose lease has lapsed and returns them.
  std::vector<WorkerId> Expire();
  // The workers that were dropped since the last call because a younger process took their name or
  // because they loaded other weights. Such a process may still run, frozen or out of reach; no
  // lease of it will lapse here.
  std::vector<WorkerId> TakeReplaced();
  // When the next lease lapses; kNoDeadline without workers.
  TimePoint NextExpiry() const;
  // When a worker was last suspected, found unreachable, dropped or replaced, or began to leave;
  // nothing while none ever was.
  std::optional<TimePoint> LatestDeparture() const;

  // The present view of the workers, which never changes. It must not outlive the cluster.
  std::shared_ptr<const ClusterView> View() const;
  const ClusterOptions& options() const { return options_; }

 private:
  // A view, and how many readers hold it. Guarded by mutex_, but readers use the view that they
  // hold without it.
  struct Version {
    ClusterView view;
    int readers = 0;
  };

  absl::Status CheckMayJoin(const WorkerView& joining) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateLeaving(WorkerView& worker, bool reports_leaving, Duration silence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetLeaving(WorkerView& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WorkerView* Find(const WorkerId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Admit(WorkerView joining) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The view, to be changed. It is copied first while readers hold it, so that what they hold stays
  // as it is.
  ClusterView& Changing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyListener() ABSL_LOCKS_EXCLUDED(mutex_);

  const ClusterOptions options_;
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<Version> current_ ABSL_GUARDED_BY(mutex_);
  std::optional<TimePoint> latest_departure_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkerId> replaced_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> listener_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
