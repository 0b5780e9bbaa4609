#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/attempt/attempt_workers.h"
#include "router/attempt/expected_work.h"
#include "router/attempt/failover.h"
#include "router/attempt/load_charge.h"
#include "router/attempt/output_relay.h"
#include "router/attempt/worker_requests.h"
#include "router/client/worker_client.h"
#include "router/policy/route_query.h"
#include "router/prefix/prefix_claim.h"
#include "router/request/request_spec.h"

namespace tandem {

class Attempt;

// Is told how an attempt goes, and decides what follows. Thread: the router's loop.
class AttemptOwner {
 public:
  virtual ~AttemptOwner() = default;
  // The decode worker has reserved blocks: Prefill follows.
  virtual void OnReserved(Attempt& attempt) = 0;
  // Exactly one of OnAttemptFinished, OnAttemptFailed and OnAttemptBroken ends the attempt; the
  // owner may destroy it there. OnAttemptBroken: a worker sent what it must not send, which fails
  // the request.
  virtual void OnAttemptFinished() = 0;
  virtual void OnAttemptFailed(Attempt& attempt, const AttemptFailure& failure) = 0;
  virtual void OnAttemptBroken(const absl::Status& status) = 0;
};

// Time before the first token that was spent on reservations.
struct ReserveTimes {
  Duration asking{};   // until decode workers answered
  Duration waiting{};  // until decode workers had room; not part of `asking`
};

// What the workers of one attempt have reported.
struct AttemptReports {
  bool prefill_finished = false;  // by a finish of its worker, not only by the end of its stream
  bool decode_finished = false;   // by a finish of its worker, not only by the end of its stream
  bool heard = false;             // some worker has sent an event
  bool kv_arrived = false;        // the decode worker has sent an event, so it has the KV
  // Whether the prefill worker's report on its transfer has come, or never will.
  bool accounted = false;
  v1::KvReport kv;               // the prefill worker's report on its transfer
  uint64_t kv_hidden_bytes = 0;  // bytes that arrived during the prefill, as the decode worker saw
  int32_t cached_tokens = 0;
  int32_t evicted_tokens = 0;
  int32_t preemptions = 0;
  ReserveTimes reserve;
};

// What attempts work with. All of it outlives them.
struct AttemptParts {
  Cluster& cluster;
  RequestLedger& ledger;
  WorkerClient& workers;
  const Clock& clock;
  PrefixIndex* prefixes = nullptr;  // null: no hits are predicted
  TracePoint trace = {};            // the span of the attempt, where its request is traced
};

// One attempt of a request at its workers: the calls to them, the load that they are charged with,
// the reservation at the decode worker, and what they report. All choices of the request share it:
// their prompt is computed, and moved, once.
//
//   Generate ---------> unified -------------------------------------> finished
//   Reserve ----------> reserving -------> prefilling -> decoding ----> finished
//   Reserve(kAhead) --> reserving ahead -> prefilling -> decoding ----> finished
//
// kAhead is for a request that still runs, or waits, elsewhere: it stays there until blocks are
// reserved.
// Decode starts once every choice has its first token (a beam search: its first candidates); where
// no choice needs more, prefilling is the end. Any stage may fail.
// Stop, which also runs on destruction, drops the calls (which cancels the work at the workers),
// releases a reservation that was not used up, and gives the charges back.
// Thread: the router's loop.
class Attempt {
 public:
  // What the decode worker does without room, and whether the request waits there or elsewhere.
  enum class ReserveMode : uint8_t {
    kRefuse,  // it refuses at once, because the request can go to another worker
    kQueue,   // it queues the request
    kAhead,   // it queues the request, which is still at its previous worker
  };

  // `number` counts the attempts of a request from 1. `spec`, `relay` and `owner` outlive it.
  Attempt(const AttemptParts& parts, const RequestSpec& spec, OutputRelay& relay,
          AttemptOwner& owner, AttemptWorkers workers, const ExpectedWork& expected,
          uint64_t number);
  ~Attempt() { Stop(); }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  void Generate();
  void Reserve(ReserveMode mode);
  // Prefills with the blocks that were reserved, then decodes.
  void Prefill();

  // Choice `index` needs no more tokens: sends that to the worker that would continue it.
  // Idempotent.
  void EndChoice(int32_t index);
  // Nothing more will come from the workers `lost`: their calls end with `end`.
  void OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end);
  void Stop();
  // Like Stop, for a request that is taken out of a worker's queue: its wait there counts as
  // waiting for room.
  void LeaveQueue();

  // Whether the request would have to begin another attempt without the workers `ids`. It need not
  // without a prefill worker that has begun, as long as that worker finishes what it has begun.
  bool DependsOn(const std::vector<WorkerId>& ids) const;
  // The worker in whose queue the request may be; null when it is in none.
  const WorkerId* QueuedAt() const;
  // What the workers are charged with for a request that is in a queue.
  std::vector<WaitingPart> WaitingParts() const;

  AttemptStage stage() const { return stage_; }
  const AttemptWorkers& workers() const { return workers_; }
  const AttemptReports& reports() const { return reports_; }

 private:
  struct Choice {
    v1::TokenLogprobs first_token;  // decode begins with it; `sampled` is unset until it has come
    bool end_sent = false;          // its worker was sent the end of the choice
  };
  struct Reservation {
    ReserveMode mode = ReserveMode::kQueue;
    TimePoint asked;
    std::unique_ptr<WorkerCall> call;
    v1::KvTarget target;  // reservation_id 0: there is none to release
    LoadCharge charge;    // what the decode worker is charged with
  };
  // What the attempt has at the worker that prefills, on either route.
  struct PrefillPart {
    LoadCharge charge;
    PrefixClaim claim;
    std::unique_ptr<WorkerCall> call;
  };

  void Begin();
  void Decode();
  // The emitted tokens after which the worker continues, so that it sends only what follows them;
  // null when it begins with the first token.
  const StreamedOutput* TakeContinued();

  void OnReserved(const CallEnd& end, const v1::ReserveResponse& response);
  StreamHandlers PrefillHandlers();
  void OnPrefillEvent(const v1::WorkerEvent& event);
  // Returns false when the attempt is over; its owner may have destroyed it.
  bool OnPrefillEnd(const CallEnd& end);
  void OnDecodeEvent(const v1::WorkerEvent& event);
  void OnDecodeEnd(const CallEnd& end);

  void KeepFirstToken(const v1::WorkerTokens& tokens);
  void SetAccounted();
  void Fail(const WorkerRef& worker, const CallEnd& end);

  const AttemptParts parts_;
  const RequestSpec& spec_;
  OutputRelay& relay_;
  AttemptOwner& owner_;
  const AttemptWorkers workers_;
  const ExpectedWork expected_;
  const WorkerRequests requests_;

  AttemptStage stage_ = AttemptStage::kIdle;
  bool continues_ = false;  // the worker that decodes continues after tokens of earlier attempts
  std::vector<Choice> choices_;
  std::optional<v1::BeamStart> beam_start_;  // decode of a beam search begins with it
  AttemptReports reports_;
  Reservation reservation_;
  PrefillPart prefill_;
  std::unique_ptr<WorkerCall> decode_call_;
};

}  // namespace tandem
