#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/cluster.h"
#include "router/event_loop.h"
#include "router/request_spec.h"
#include "router/routing_policy.h"
#include "router/worker_client.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

class Tokenizer;

// What every request of a router works with; outlives them.
struct RouterParts {
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  Cluster& cluster;
  RoutingPolicy& policy;
  WorkerClient& workers;
  EventLoop& loop;
  const Clock& clock;
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
// moved, once.
//
//   deciding -> unified ------------------------------> ended
//            -> reserving -> prefilling -> decoding ---> ended
//   reserving  -> deciding   no room or no answer there: another worker, or another route
//   prefilling -> ended      the first token of each choice was also its last
//   unified, prefilling, decoding -> deciding
//                            the worker was lost before any token was told: once, elsewhere
//
// Decode starts once every choice has its first token (a beam search: once it has its first
// candidates). Whatever the way out, both workers' calls are dropped (which cancels the work
// there), a reservation not used up is released, and the load charged to the workers is given back.
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
  // The lease of these workers has lapsed: fails, or goes elsewhere, when it depends on one.
  void OnWorkersLost(const std::vector<WorkerId>& lost);

  bool ended() const { return state_ == State::kEnded; }
  // Whether the way of the KV is known, or never will be: then Describe is final.
  bool accounted() const { return reports_.accounted; }
  // Fills in the route, the workers and the bytes moved.
  void Describe(v1::ChoiceFinish& finish) const;
  // Waiting for decode workers to set blocks aside, all attempts together.
  Duration reserve_time() const { return reserve_time_; }
  int32_t cached_tokens() const { return reports_.cached_tokens; }
  int32_t preemptions() const { return reports_.preemptions; }

 private:
  enum class State : uint8_t { kDeciding, kUnified, kReserving, kPrefilling, kDecoding, kEnded };

  // What the workers of the present attempt have said.
  struct Reports {
    bool prefill_finished = false;  // by a finish, not only by the end of its stream
    bool decode_finished = false;   // likewise
    bool decode_heard = false;      // it has said something: the KV has arrived
    bool accounted = false;
    v1::KvReport kv;
    int32_t cached_tokens = 0;
    int32_t preemptions = 0;
  };

  void Decide();
  void StartUnified();
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
  void SetAccounted();
  // Goes elsewhere if that may still help, else fails. `worker` answered so, or was lost.
  void OnFailure(const WorkerView& worker, const CallEnd& end);
  bool MayTryElsewhere(const absl::Status& status);

  void Finish();
  void Fail(const absl::Status& status);
  void LeaveWorkers();
  void GiveBackPrompt();
  void GiveBack(const WorkerId& id, WorkerCharge& charge);

  const RouterParts parts_;
  const RequestSpec& spec_;
  DispatchObserver& observer_;

  State state_ = State::kDeciding;
  RouteDecision decision_;
  std::vector<WorkerId> excluded_;
  int retries_left_ = 1;
  absl::Status last_failure_;
  bool told_tokens_ = false;     // the observer has heard of some: too late to go elsewhere
  bool settled_ = false;         // no choice needs more
  std::vector<bool> told_end_;   // per choice: its worker knows that it needs no more
  WorkerCharge prefill_charge_;  // what is still to be given back
  WorkerCharge decode_charge_;

  std::unique_ptr<WorkerCall> reserve_call_;
  std::unique_ptr<WorkerCall> prefill_call_;  // of the worker that prefills, unified or not
  std::unique_ptr<WorkerCall> decode_call_;
  v1::KvTarget reserved_;  // reservation_id 0: none to release
  // What decode begins with: per choice, without `sampled` until it has come; of beams one.
  std::vector<v1::TokenLogprobs> first_tokens_;
  v1::StageTimes beam_stages_;  // of the prefill worker, whose beams have no first token

  TimePoint reserve_started_;
  Duration reserve_time_{};
  Reports reports_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // outlived by timers
};

}  // namespace tandem
