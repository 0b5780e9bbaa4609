#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/attempt/attempt_workers.h"
#include "router/attempt/exclusions.h"
#include "router/attempt/resume_stats.h"
#include "router/client/worker_client.h"

namespace tandem {

// How many losses of workers a request survives, and how long it waits for another worker.
struct ResumeLimits {
  int32_t max_resumes = 3;  // after losses; moving away from a leaving worker costs none
  Duration max_wait = std::chrono::seconds(10);  // for a worker that can take the request
};

// Where an attempt is (router/attempt/attempt.h).
enum class AttemptStage : uint8_t {
  kIdle,
  kUnified,
  kReservingAhead,
  kReserving,
  kPrefilling,
  kDecoding,
  kStopped,
};

// A worker ended its part of an attempt with an error, or was lost.
struct AttemptFailure {
  WorkerRef worker;
  CallEnd end;
  AttemptStage stage = AttemptStage::kIdle;
  AttemptWorkers workers;
  bool heard = false;        // some worker of the attempt had sent an event
  bool kv_arrived = false;   // the decode worker had sent an event, so it has the KV
  bool could_queue = false;  // reserving: the decode worker was allowed to queue the request
};

// What a request does next.
struct FailoverStep {
  enum class Action : uint8_t {
    kTryAnother,  // another attempt: nothing was lost
    kResume,      // another attempt, after the tokens that the client has; `cause` says why
    kWait,        // until the cluster changes, or until retry_deadline()
    kFail,        // with `status`
    kFinish,      // the client has all that it wanted
  };
  Action action;
  absl::Status status = {};
  ResumeCause cause = ResumeCause::kConnection;
  bool gave_up = false;                  // kFail: workers were lost, and no more are tried
  std::optional<WorkerId> suspect = {};  // a call did not reach this worker
  std::optional<WorkerId> avoid = {};    // a decode worker; other requests should prefer others
};

// Decides what becomes of a request when its workers fail, refuse it or leave: which workers it
// should not be sent to, how many losses it survives, how long it waits, and how it ends. It calls
// no worker and has no clock: the caller passes the time and a snapshot of the cluster.
//
//   event                                            step
//   -----                                            ----
//   any failure, the client has all that it wanted   finish
//   RESOURCE_EXHAUSTED before any event              try another
//   an error that is not a loss                      fail with it
//   a loss, the worker was leaving                   resume, which costs no budget
//   a loss, the budget is used up                    fail, gave up
//   a loss                                           resume
//   resume after the request's deadline              fail with DEADLINE_EXCEEDED
//   no route, after a resume or a recent departure   wait; after retry_deadline fail
//   no route                                         fail with the last refusal, or for want of one
//
// Thread: one at a time.
class Failover {
 public:
  // `deadline`: the deadline of the request.
  Failover(const ResumeLimits& limits, TimePoint deadline) : limits_(limits), deadline_(deadline) {}

  // A worker has failed: returns what the request does next. `settled`: no choice needs more
  // tokens. `query`: of the request, without exclusions.
  FailoverStep OnFailure(const AttemptFailure& failure, bool settled, const ClusterView& view,
                         const RouteQuery& query, TimePoint now);
  // The request leaves its attempt: kResume, or kFail when its deadline has passed. Begins the wait
  // for a worker anew.
  FailoverStep OnLeave(ResumeCause cause, TimePoint now);
  // No worker can take the request, as `no_route` says: kWait or kFail. latest_departure: when a
  // worker of the cluster was last lost or left, if ever.
  FailoverStep OnNoRoute(const absl::Status& no_route, std::optional<TimePoint> latest_departure,
                         TimePoint now);

  // Forgets the latest refusal: the workers that refused the request without queueing it can be
  // asked to queue it, but there is no route to them, and "ask another worker" is no answer for a
  // client.
  void ForgetRefusal() { last_failure_ = absl::OkStatus(); }

  Exclusions& exclusions() { return exclusions_; }
  const Exclusions& exclusions() const { return exclusions_; }
  // Until when the request waits for a worker; nothing before the first wait or resume.
  std::optional<TimePoint> retry_deadline() const { return retry_deadline_; }
  int32_t resumes() const { return resumes_; }
  // The error of the latest failure; OK before any, and after ForgetRefusal.
  const absl::Status& last_failure() const { return last_failure_; }

 private:
  void ExcludeRefusing(const AttemptFailure& failure, TimePoint now);
  void ExcludeLost(const AttemptFailure& failure, const ClusterView& view, const RouteQuery& query,
                   TimePoint now);
  bool IsWorthWaiting(const absl::Status& no_route, std::optional<TimePoint> latest_departure,
                      TimePoint now) const;
  void ExtendRetryDeadline(TimePoint now);
  absl::Status StatusOfGivingUp(const std::string& why, TimePoint now) const;

  const ResumeLimits limits_;
  const TimePoint deadline_;
  Exclusions exclusions_;
  absl::Status last_failure_;
  int32_t resumes_ = 0;
  int32_t losses_ = 0;             // resumes that count against the budget
  std::vector<std::string> lost_;  // names of the lost workers
  std::optional<TimePoint> retry_deadline_;
};

}  // namespace tandem
