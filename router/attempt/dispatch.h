#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "router/admission/admission_control.h"
#include "router/attempt/attempt.h"
#include "router/attempt/failover.h"
#include "router/attempt/output_relay.h"
#include "router/attempt/queue_move.h"
#include "router/attempt/reroute_stats.h"
#include "router/attempt/resume_stats.h"
#include "router/attempt/routing_stats.h"
#include "router/client/worker_client.h"
#include "router/cluster/cluster.h"
#include "router/event_loop.h"
#include "router/explain/decision_log.h"
#include "router/output_length/length_forecasts.h"
#include "router/policy/routing_policy.h"
#include "router/prefix/prefix_index.h"
#include "router/prefix/session_table.h"
#include "router/request/request_spec.h"

namespace tandem {

class AnswerBuffers;
class RequestMetrics;
class Tokenizer;
class Tracer;

// What every request of a router works with. All of it outlives them.
struct RouterParts {
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  Cluster& cluster;
  AdmissionControl& admission;
  RequestLedger& ledger;
  RoutingPolicy& policy;
  WorkerClient& workers;
  EventLoop& loop;
  const Clock& clock;
  ResumeStats& resumes;
  RerouteStats& reroutes;
  RoutingStats& routing;
  LengthForecasts& length_forecasts;
  DecisionLog& decisions;
  RequestMetrics& metrics;
  ResumeLimits resume_limits = {};
  const AnswerBuffers* answers = nullptr;  // for the status; null: answers are not counted
  PrefixIndex* prefixes = nullptr;         // null: no prefix hits are predicted
  SessionTable* sessions = nullptr;        // null: requests of one session are placed like others
  RouteProofs* proofs = nullptr;           // null: which routes work is not recorded
  const Tracer* tracer = nullptr;          // null: requests belong to no trace
  bool log_requests = false;  // each request that ends, with its tenant, whatever the log's level
};

// Where a request runs or ran, and what that cost so far.
struct RequestReport {
  v1::Route route = v1::ROUTE_AUTO;  // auto: no worker has been chosen yet
  WorkerId prefill;
  WorkerId decode;       // the same as `prefill` when unified
  AttemptReports last;   // of the latest attempt
  ReserveTimes reserve;  // of all attempts together
  // The time from the beginning of the first attempt to that of the one that brought the first
  // token, without the reservations before that.
  Duration earlier_attempts{};
  int32_t resumes = 0;  // how often the request continued elsewhere after a worker was lost or left
};

// Takes one request, with all of its choices, through the workers: it asks the policy for a route,
// runs an attempt there, and does what Failover decides when that attempt fails.
//
//   deciding -> running -> ended
//   deciding -> waiting -> deciding   no worker can take the request now
//   running -> deciding               a worker refused it, was lost, or is leaving and others can
//                                     take it
//   running -> running                blocks were reserved for it elsewhere, because its worker is
//                                     leaving or because it waits in a worker's queue while another
//                                     route has become free (router/attempt/queue_move.h)
//
// Thread: the router's loop.
class Dispatch final : private AttemptOwner {
 public:
  // `spec` and `observer` outlive it.
  Dispatch(const RouterParts& parts, const RequestSpec& spec, DispatchObserver& observer);
  ~Dispatch() override;
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  void Start() { Decide(); }
  // Choice `index` needs no more tokens: sends that to the worker that would continue it.
  // Idempotent.
  void EndChoice(int32_t index);
  // No choice needs more tokens: finishes when the workers have finished, or after a timeout.
  void Settle();
  // Ends the request without another call to the observer.
  void Abandon();
  // Nothing more is expected of the workers `lost`: their calls end with `end`. Another attempt
  // begins when the request depends on one of them.
  void OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end);
  // The workers `leaving` finish what they have: the request continues elsewhere if it can, else it
  // stays.
  void OnWorkersLeaving(const std::vector<WorkerId>& leaving);
  // Workers registered, left or reported: a request that waits for a worker decides again, and one
  // that waits in a worker's queue may leave it (router/attempt/queue_move.h).
  void OnClusterChanged();

  bool ended() const { return state_ == State::kEnded; }
  // Whether a change of the cluster may take the request further: no worker can take it now, it may
  // be in the queue of one, or it is about to leave such a queue. DispatchObserver::OnWaits is
  // called whenever this becomes true.
  bool waits() const;
  RequestReport Report() const;

 private:
  enum class State : uint8_t { kDeciding, kWaiting, kRunning, kEnded };
  // Times of the attempts before the present one, which is attempt_.
  struct EarlierAttempts {
    TimePoint decides_since;  // when the latest decision began, which may wait for a worker
    TimePoint first_began;
    ReserveTimes reserve;
    Duration rest{};  // for RequestReport::earlier_attempts
  };

  void OnReserved(Attempt& attempt) override;
  void OnAttemptFinished() override { Finish(); }
  void OnAttemptFailed(Attempt& attempt, const AttemptFailure& failure) override;
  void OnAttemptBroken(const absl::Status& status) override { Fail(status); }

  void Decide();
  absl::StatusOr<RouteDecision> Choose(const ClusterView& view);
  // What the request asks of a route, without exclusions.
  RouteQuery Query() const;
  // NewAttempt and StartAttempt take a decision that was made from `view`, which contains its
  // workers, and enter it in the decision log.
  std::unique_ptr<Attempt> NewAttempt(const RouteDecision& decision, const ClusterView& view,
                                      DecisionCause cause);
  void StartAttempt(const RouteDecision& decision, std::shared_ptr<const ClusterView> view,
                    DecisionCause cause);
  void ReplaceAttempt(std::unique_ptr<Attempt> attempt);
  // Leaves the attempt and decides anew.
  void Resume(ResumeCause cause);
  // Stops the attempt, so that another can begin. False when the request has ended instead, because
  // nothing was left to do or its deadline has passed.
  bool LeaveAttempt(ResumeCause cause);
  void ScheduleRetry();
  void Finish();
  void Fail(const absl::Status& status);

  const RouterParts parts_;
  const RequestSpec& spec_;
  DispatchObserver& observer_;
  OutputRelay relay_;
  Failover failover_;
  QueueMove queue_move_;

  State state_ = State::kDeciding;
  bool settled_ = false;              // no choice needs more tokens
  std::unique_ptr<Attempt> attempt_;  // the latest; it is stopped unless the state is running
  std::unique_ptr<Attempt> next_;     // reserves blocks elsewhere while attempt_ still runs
  uint64_t attempts_ = 0;
  bool refused_ = false;               // a worker of attempt_ had no room
  std::optional<WorkerId> prompt_at_;  // the prefill worker that computed the prompt last
  EarlierAttempts earlier_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // timers outlive the dispatch
};

}  // namespace tandem
