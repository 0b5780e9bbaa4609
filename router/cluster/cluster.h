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
  std::string model;  // the only one served
  // A worker that was killed is missed within 3 s.
  Duration lease = std::chrono::milliseconds(2500);
  Duration heartbeat = std::chrono::milliseconds(500);
  size_t max_workers = 1024;
};

// The workers that have a lease: what they reported, and what this router has charged them with
// since. Every change publishes a new snapshot.
// Thread-safe.
class Cluster {
 public:
  Cluster(ClusterOptions options, const Clock& clock);

  // A name that is known already changes hands only when its holder has been silent for two
  // heartbeats or is leaving, and only to a younger incarnation. A silent holder is then lost
  // (TakeReplaced); one that is leaving keeps its lease beside the younger one.
  // NOT_FOUND: another model than this router serves. FAILED_PRECONDITION: it does not agree with
  // one of the workers that are not leaving (router/cluster/agreement.h), or may not have the name.
  // INVALID_ARGUMENT: a field is missing, too long or out of range (router/cluster/registration_check.h).
  // RESOURCE_EXHAUSTED: there are max_workers already.
  // No message tells what only another worker knows: its incarnation or its model's fingerprint.
  absl::Status Register(const v1::RegisterRequest& request);
  // NOT_FOUND when the lease has lapsed, was never there, or is another life's. INVALID_ARGUMENT
  // for a load that cannot be: the lease is not renewed. FAILED_PRECONDITION when the worker has
  // loaded other weights than those that serve already: it is dropped. A worker that was
  // deregistered and says that it is not leaving gets requests again, from its second heartbeat on.
  absl::Status Heartbeat(const v1::HeartbeatRequest& request);
  // First: the worker is leaving; it gets nothing new and keeps its lease while it ends what it
  // has. Again: it is gone. False when there is no such worker.
  bool Deregister(std::string_view name, uint64_t incarnation);

  // `changed` is called after a worker has come, reported, begun to leave or gone: on the thread
  // that told so, with no lock held. Empty: nobody listens any more.
  void SetListener(std::function<void()> changed);

  // A call to this worker failed to reach it: nothing is sent there until it is heard of again.
  void Suspect(const WorkerId& id);

  // A hand-off to this worker failed: for kAvoided requests go to others where there are any.
  static constexpr Duration kAvoided = std::chrono::seconds(10);
  void Avoid(const WorkerId& id);

  // Nothing is sent to a worker that cannot be reached, though it is heard of.
  enum class Reach : bool { kLost, kRegained };
  void SetReach(const WorkerId& id, Reach reach);

  // Load that the worker's next report may not yet show: taken at decision time, given back when
  // that part of the request has ended. Unknown workers are ignored.
  void Charge(const WorkerId& id, const WorkerCharge& charge);
  void Discharge(const WorkerId& id, const WorkerCharge& charge);

  // This router stood still for so long, and could hear nobody: all leases last longer by as much.
  void Postpone(Duration stood_still);
  // Drops the workers whose lease has lapsed and returns them.
  std::vector<WorkerId> Expire();
  // The lives that a younger one has taken the name of since the last call. The process may live
  // on, frozen or out of reach; no lease of it will lapse here.
  std::vector<WorkerId> TakeReplaced();
  // When Expire is due next; kNoDeadline without workers.
  TimePoint NextExpiry() const;
  // When a worker was last suspected, unreachable, dropped by Expire, replaced, or began to leave;
  // nothing while none ever was.
  std::optional<TimePoint> LatestDeparture() const;

  std::shared_ptr<const ClusterView> View() const;
  const ClusterOptions& options() const { return options_; }

 private:
  absl::Status CheckMayJoin(const WorkerView& joining) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Follow(WorkerView& worker, bool says_leaving, Duration silence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetLeaving(WorkerView& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WorkerView* Find(const WorkerId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Admit(WorkerView joining) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellListener() ABSL_LOCKS_EXCLUDED(mutex_);

  const ClusterOptions options_;
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  ClusterView current_ ABSL_GUARDED_BY(mutex_);
  std::optional<TimePoint> latest_departure_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkerId> replaced_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ClusterView> published_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> listener_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
