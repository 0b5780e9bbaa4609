#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/choice_text.h"
#include "router/cluster.h"
#include "router/event_loop.h"
#include "router/routing_policy.h"
#include "router/stages.h"
#include "router/worker_client.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// What every choice of a router works with; outlives them.
struct RouterParts {
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  Cluster& cluster;
  RoutingPolicy& policy;
  WorkerClient& workers;
  EventLoop& loop;
  const Clock& clock;
};

// One choice, everything resolved.
struct ChoiceSpec {
  int32_t index = 0;
  v1::SequenceRequest sequence;
  std::vector<std::string> stop_strings;
  v1::Route wanted = v1::ROUTE_AUTO;
  TimePoint received;
  TimePoint deadline = kNoDeadline;
};

// Hears what becomes of a choice. It may destroy the choice only later, from another task.
// Thread: the router's loop.
class ChoiceObserver {
 public:
  virtual ~ChoiceObserver() = default;
  virtual void OnChunk(v1::Chunk chunk) = 0;
  // One of these two, once, last.
  virtual void OnChoiceFinished(v1::ChoiceFinish finish) = 0;
  virtual void OnChoiceFailed(const absl::Status& status) = 0;
};

// One sequence on its way through the workers.
//
//   deciding -> unified ------------------------------> ended
//            -> reserving -> prefilling -> decoding ---> ended
//   reserving  -> deciding   no room or no answer there: another worker, or another route
//   prefilling -> ended      the first token was also the last
//   unified, prefilling -> deciding   the worker was lost before any token came: once, elsewhere
//
// Whatever the way out, both workers' calls are dropped (which cancels the work there), a
// reservation not used up is released, and the load charged to the workers is given back.
// Thread: the router's loop.
class Choice {
 public:
  Choice(const RouterParts& parts, ChoiceSpec spec, ChoiceObserver& observer);
  ~Choice();
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  void Start() { Decide(); }
  // Ends it without another word to the observer.
  void Abandon();
  // The lease of these workers has lapsed: fails, or goes elsewhere, when it depends on one.
  void OnWorkersLost(const std::vector<WorkerId>& lost);

  bool ended() const { return state_ == State::kEnded; }
  int32_t completion_tokens() const { return completion_tokens_; }
  const ChoiceSpec& spec() const { return spec_; }

 private:
  enum class State : uint8_t { kDeciding, kUnified, kReserving, kPrefilling, kDecoding, kEnded };

  void Decide();
  void StartUnified();
  void StartReserve();
  void OnReserved(const CallEnd& end, const v1::ReserveResponse& response);
  void StartPrefill();
  void StartDecode(int32_t first_token);

  StreamHandlers PrefillSideHandlers();
  void OnPrefillSideEvent(const v1::WorkerEvent& event);
  void OnPrefillSideEnd(const CallEnd& end);
  void OnDecodeEvent(const v1::WorkerEvent& event);
  void OnDecodeEnd(const CallEnd& end);

  void TakeTokens(const v1::WorkerTokens& tokens);
  void TakeFirstToken(const v1::WorkerTokens& tokens);
  // Goes elsewhere if that may still help, else fails. `worker` answered so, or was lost.
  void OnFailure(const WorkerView& worker, const CallEnd& end);
  bool MayTryElsewhere(const absl::Status& status);

  void CompleteOnceReported();
  void Complete();
  void Fail(const absl::Status& status);
  v1::ChoiceFinish MakeFinish();
  void LeaveWorkers();
  void GiveBack(const WorkerId& id, WorkerCharge& charge);

  const RouterParts parts_;
  const ChoiceSpec spec_;
  ChoiceObserver& observer_;
  ChoiceText text_;

  State state_ = State::kDeciding;
  RouteDecision decision_;
  std::vector<WorkerId> excluded_;
  int retries_left_ = 1;
  absl::Status last_failure_;
  WorkerCharge prefill_charge_;  // what is still to be given back
  WorkerCharge decode_charge_;

  std::unique_ptr<WorkerCall> reserve_call_;
  std::unique_ptr<WorkerCall> prefill_call_;  // of the worker that prefills, unified or not
  std::unique_ptr<WorkerCall> decode_call_;
  v1::KvTarget reserved_;  // reservation_id 0: none to release

  ChoiceTimes times_;
  TimePoint reserve_started_;
  v1::StageTimes prefill_stages_;
  v1::KvReport kv_;
  v1::FinishReason reason_ = v1::FINISH_REASON_UNSPECIFIED;
  bool prefill_reported_ = false;  // the prefill side's finish has come
  int32_t completion_tokens_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // outlived by timers
};

}  // namespace tandem
