#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/attempt/queue_move.h"
#include "router/attempt/reroute_stats.h"
#include "router/attempt/resume_stats.h"
#include "router/attempt/told_output.h"
#include "router/client/worker_client.h"
#include "router/cluster/cluster.h"
#include "router/cluster/numerics.h"
#include "router/event_loop.h"
#include "router/policy/routing_policy.h"
#include "router/request/request_spec.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

class AnswerBuffers;
class Tokenizer;

// What a request may cost that loses its workers.
struct ResumeLimits {
  int32_t max_resumes = 3;  // after a loss; leaving a worker that is going costs none
  Duration max_wait = std::chrono::seconds(10);  // after a loss, for a worker that can take it
};

// What every request of a router works with; outlives them.
struct RouterParts {
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  Cluster& cluster;
  RoutingPolicy& policy;
  WorkerClient& workers;
  EventLoop& loop;
  const Clock& clock;
  ResumeStats& resumes;
  RerouteStats& reroutes;
  ResumeLimits resume_limits = {};
  const AnswerBuffers* answers = nullptr;  // for the status; null: answers are not counted
};

// Hears what the workers say of a request. It may destroy the dispatch only later, from another
// task. Thread: the router's loop.
class DispatchObserver {
 public:
  virtual ~DispatchObserver() = default;
  // Tokens of one choice; `stages` are those of its first token. Indices are in range.
  virtual void OnTokens(const v1::WorkerTokens& tokens, const v1::StageTimes& stages) = 0;
  virtual void OnChoiceEnded(const v1::WorkerChoiceFinish& finish) = 0;
  // Whether any choice goes on behind its first token. Asked once all have theirs.
  virtual bool NeedsDecode() const = 0;
  // See Dispatch::accounted.
  virtual void OnAccounted() = 0;
  // One of these two, once, last. The workers may not have ended every choice.
  virtual void OnFinished() = 0;
  virtual void OnFailed(const absl::Status& status) = 0;
};

// One request on its way through the workers, with all of its choices: its prompt is computed, and
// moved, once per attempt.
//
//   deciding -> unified ------------------------------> ended
//            -> reserving -> prefilling -> decoding ---> ended
//            -> waiting -> deciding       nobody can take it now, after a loss: until there is news
//   unified, reserving -> unified, reserving   elsewhere, when that has become free while the
//                            request still waits in a worker's queue (router/attempt/queue_move.h)
//   reserving  -> deciding   no room there: another worker, or another route, or the same worker
//                            once more, to wait for room there since the others are gone
//   prefilling -> ended      the first token of each choice was also its last
//   unified, reserving, prefilling, decoding -> deciding
//                            a worker was lost, or is leaving and others can take it: a new attempt
//                            goes on behind what the observer was told
//   unified, decoding -> prefilling
//                            the worker is leaving, and another decode worker has reserved blocks
//
// Decode starts once every choice has its first token (a beam search: once it has its first
// candidates). Whatever the way out, both workers' calls are dropped (which cancels the work
// there), a reservation not used up is released, and the load charged to the workers is given back.
//   dispatch.cc       the way through the workers
//   dispatch_loss.cc  losses, and the way out
// Thread: the router's loop.
class Dispatch {
 public:
  // `spec` outlives it.
  Dispatch(const RouterParts& parts, const RequestSpec& spec, DispatchObserver& observer);
  ~Dispatch();
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  void Start() { Decide(); }
  // Choice `index` needs no more tokens; its worker is told, if it would go on. Idempotent.
  void EndChoice(int32_t index);
  // No choice needs more tokens: finishes when the workers have, or after a moment.
  void Settle();
  // Ends it without another word to the observer.
  void Abandon();
  // Nothing more is expected of these workers: their calls end so. Goes elsewhere when it depends
  // on one.
  void OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end);
  // These end what they have: goes elsewhere if it can, else stays.
  void OnWorkersLeaving(const std::vector<WorkerId>& leaving);
  // Workers came, went or reported.
  void OnClusterChanged();

  bool ended() const { return state_ == State::kEnded; }
  // Whether the way of the KV is known, or never will be: then Describe is final.
  bool accounted() const { return reports_.accounted; }
  // Fills in the route, the workers and the bytes moved.
  void Describe(v1::ChoiceFinish& finish) const;
  // Waiting for decode workers to set blocks aside, all attempts before the first token together.
  Duration reserve_time() const { return reserve_times_.asking; }
  // Waited for room at decode workers; not part of reserve_time.
  Duration admission_time() const { return reserve_times_.waiting; }
  int32_t cached_tokens() const { return reports_.cached_tokens; }
  int32_t preemptions() const { return reports_.preemptions; }
  // How often it went on elsewhere after a worker was lost or left.
  int32_t resumes() const { return resumes_; }
  // As the decode worker told at its end.
  uint64_t kv_hidden_bytes() const { return reports_.hidden_bytes; }

 private:
  enum class State : uint8_t {
    kDeciding,
    kWaiting,
    kUnified,
    kReserving,
    kPrefilling,
    kDecoding,
    kEnded,
  };

  // A worker that this request should not be sent to.
  struct Exclusion {
    // kNobodyElse: until it was heard of and no other worker could take the request, not even one
    // that has to be waited for.
    enum class Until : uint8_t { kHeardOf, kNobodyElse, kEver };
    WorkerId id;
    TimePoint since;
    Until until = Until::kHeardOf;
    bool asked_at_once = false;  // it has no room now: whether it had soon was not waited for
    std::optional<WorkerId> unreached_by = {};  // a prefill worker whose hand-off to it failed
  };
  // Since when the client hears nothing, and why.
  struct Interruption {
    TimePoint since;
    ResumeCause cause = ResumeCause::kConnection;
  };

  // On the way out of a worker that is leaving: room is reserved elsewhere before it is left.
  struct Move {
    RouteDecision decision;
    WorkerCharge charge;
    std::unique_ptr<WorkerCall> reserve;
  };

  struct ReserveTimes {
    TimePoint started;   // the call that is under way
    Duration asking{};   // of all attempts before the first token
    Duration waiting{};  // for room, likewise
  };

  // What the workers of the present attempt have said.
  struct Reports {
    bool prefill_finished = false;  // by a finish, not only by the end of its stream
    bool decode_finished = false;   // likewise
    bool heard = false;             // somebody has said something
    bool decode_heard = false;      // the decode worker has: the KV has arrived
    bool accounted = false;
    v1::KvReport kv;            // the prefill worker's
    uint64_t hidden_bytes = 0;  // of it, as the decode worker saw
    int32_t cached_tokens = 0;
    int32_t preemptions = 0;
  };

  // dispatch.cc
  void Decide();
  absl::StatusOr<RouteDecision> Choose();
  RouteQuery Query(const ClusterView& view) const;
  RouteQuery FirstChoice(const ClusterView& view, const RouteQuery& query) const;
  bool ForgiveHaste();
  void BeginAttempt(RouteDecision decision);
  void StartAttempt(RouteDecision decision);
  v1::SequenceRequest SequenceOfAttempt() const;
  template <typename Request>
  void AddSoFar(Request& request) const;
  void StartUnified();
  v1::ReserveRequest ReserveFor(const RouteDecision& decision, uint64_t attempt) const;
  bool HasPlaceWithout(const WorkerId& id) const;
  void StartReserve();
  void OnReserved(const CallEnd& end, const v1::ReserveResponse& response);
  void StartPrefill();
  void StartDecode();

  StreamHandlers PrefillSideHandlers();
  void OnPrefillSideEvent(const v1::WorkerEvent& event);
  void OnPrefillSideEnd(const CallEnd& end);
  void OnDecodeEvent(const v1::WorkerEvent& event);
  void OnDecodeEnd(const CallEnd& end);

  // Tells the observer, unless there is no such choice: that fails the request.
  void TellTokens(const WorkerView& worker, const v1::WorkerTokens& tokens);
  void TellChoiceEnded(const WorkerView& worker, const v1::WorkerChoiceFinish& finish);
  bool CheckIndex(const WorkerView& worker, int32_t index);
  void KeepFirstToken(const v1::WorkerTokens& tokens);
  Begun NumericsOfAttempt() const;
  void SetAccounted();

  // dispatch_loss.cc. `worker` answered so, or was lost: goes elsewhere if that may help, else
  // fails.
  void OnFailure(const WorkerView& worker, const CallEnd& end);
  void Exclude(const WorkerId& id, Exclusion::Until until);
  void ExcludeOfHandOff();
  void TryAnother(const WorkerView& worker, const absl::Status& status);
  void Resume(ResumeCause cause);
  // Leaves the present attempt; false when nothing is left to be done elsewhere.
  bool Leave(ResumeCause cause);
  void ReserveElsewhere(RouteDecision decision);
  void OnRoomElsewhere(const CallEnd& end, const v1::ReserveResponse& response);
  void DropMove();
  void MoveFromQueue();
  const WorkerView* QueuedAt(const ClusterView& view) const;
  bool IsWorthWaiting(const absl::Status& nobody) const;
  void BePatient();
  void WaitForNews(const absl::Status& nobody);
  void GiveUp(const std::string& why);
  bool DependsOn(const std::vector<WorkerId>& workers) const;
  // Choices whose last token was told, and not that they ended.
  void EndWhatIsOver();

  void Finish();
  void Fail(const absl::Status& status);
  void LeaveWorkers();
  void ReleaseAt(const WorkerView& decode, const v1::KvTarget& target);
  void GiveBackPrompt();
  void GiveBack(const WorkerId& id, WorkerCharge& charge);

  const RouterParts parts_;
  const RequestSpec& spec_;
  DispatchObserver& observer_;
  TimePoint last_told_;  // when the client was told its latest tokens; before any: its arrival

  State state_ = State::kDeciding;
  RouteDecision decision_;
  std::vector<Exclusion> excluded_;
  absl::Status last_failure_;
  bool refused_ =
      false;  // for want of room, by a worker of decision_: where it goes then is counted
  bool asked_at_once_ = false;         // reserving: the decode worker refuses rather than waits
  std::optional<WorkerId> prompt_at_;  // the worker that was last to prefill, role prefill
  ToldOutput told_;
  std::optional<Begun> begun_;  // once the client was told a token
  bool settled_ = false;        // no choice needs more
  std::vector<bool> told_end_;  // per choice: its worker knows that it needs no more

  uint64_t attempts_ = 0;
  bool goes_on_ = false;  // the present attempt: behind what was told
  int32_t resumes_ = 0;
  int32_t losses_ = 0;             // of these, what the budget counts
  std::vector<std::string> lost_;  // names of the workers
  std::optional<Interruption> interrupted_;
  std::optional<Move> move_;
  QueueMove queue_move_;
  TimePoint wait_until_{};  // for news, where nobody can take the request

  WorkerCharge prefill_charge_;  // what is still to be given back
  WorkerCharge decode_charge_;

  std::unique_ptr<WorkerCall> reserve_call_;
  std::unique_ptr<WorkerCall> prefill_call_;  // of the worker that prefills, unified or not
  std::unique_ptr<WorkerCall> decode_call_;
  v1::KvTarget reserved_;  // reservation_id 0: none to release
  // What decode begins with: per choice, without `sampled` until it has come; of beams one.
  std::vector<v1::TokenLogprobs> first_tokens_;
  v1::StageTimes beam_stages_;  // of the prefill worker, whose beams have no first token

  ReserveTimes reserve_times_;
  Reports reports_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // outlived by timers
};

}  // namespace tandem
