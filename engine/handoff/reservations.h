#pragma once

#include "base/clock.h"
#include "engine/handoff/admission_queue.h"
#include "engine/inbox.h"
#include "engine/loop/core.h"
#include "engine/sequence.h"
#include "engine/stats.h"

namespace tandem {

// The reservations of a decode engine: those that wait for room, those that wait for their KV, and
// the requests that decode from them. The AdmissionQueue keeps the former and the KvReceiver the
// latter; this answers the callers and starts and ends the requests.
// Thread: engine. `core` must outlive it.
class Reservations {
 public:
  explicit Reservations(EngineCore& core);

  // What other threads ask for or report; engine/inbox.h says what each message means.
  void Reserve(ReserveMessage& message);
  void Cancel(const CancelReserveMessage& message);
  void Decode(DecodeMessage& message);
  void Release(const ReleaseMessage& message);
  void Arrived(const KvArrivedMessage& message);
  void Drained(const KvDrainedMessage& message);

  // Answers waiting reservations in their order, as far as there is room.
  void AdmitWaiting();
  // Ends what has waited too long for room or for KV.
  void ActOnTime(TimePoint now);
  // When ActOnTime has something to do next.
  TimePoint NextExpiry() const;
  // Rejects every reservation that waits for room, and from now on every new one.
  void Drain();

  // Sets the fields about reservations.
  void AddTo(EngineStats& stats) const;

 private:
  void Reject(WaitingReservation& waiting, const absl::Status& status);
  void RejectExpired(TimePoint now);
  void EndExpired(TimePoint now);
  // Decodes from the KV that the request was waiting for and that is complete since `arrived`.
  void StartDecode(RequestState& request, TimePoint arrived);

  EngineCore& core_;
  AdmissionQueue waiting_;
  bool draining_ = false;
  HandoffCounts counts_;
};

}  // namespace tandem
