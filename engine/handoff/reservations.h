#pragma once

#include "base/clock.h"
#include "engine/handoff/admission_queue.h"
#include "engine/inbox.h"
#include "engine/loop/core.h"
#include "engine/sequence.h"
#include "engine/stats.h"

namespace tandem {

// The reservations of a decode engine: those that wait for room, those that wait for their KV, and
// the requests that decode from them. The AdmissionQueue holds the ones that wait for room, the
// KvReceiver those that wait for KV; this class answers the callers and starts and ends the
// requests. Thread: engine. `core` must outlive it.
class Reservations {
 public:
  explicit Reservations(EngineCore& core);

  // Handlers of the messages of other threads; engine/inbox.h says what each message means.
  void Reserve(ReserveMessage& message);
  void Cancel(const CancelReserveMessage& message);
  void Decode(DecodeMessage& message);
  void Release(const ReleaseMessage& message);
  void Arrived(const KvArrivedMessage& message);
  void Drained(const KvDrainedMessage& message);

  // Admits and answers waiting reservations in their order, as long as there is room.
  void AdmitWaiting();
  // Ends reservations that have waited too long for room or for KV.
  void ActOnTime(TimePoint now);
  // The next time at which ActOnTime has something to do.
  TimePoint NextExpiry() const;
  // Rejects every reservation that waits for room, and every new one from now on.
  void Drain();

  // Sets the fields of `stats` about reservations.
  void AddTo(EngineStats& stats) const;

 private:
  void Reject(WaitingReservation& waiting, const absl::Status& status);
  void RejectExpired(TimePoint now);
  void EndExpired(TimePoint now);
  // Starts decoding from the KV for which the request was waiting and which is complete since
  // `arrived`.
  void StartDecode(RequestState& request, TimePoint arrived);

  EngineCore& core_;
  AdmissionQueue waiting_;
  bool draining_ = false;
  HandoffCounts counts_;
};

}  // namespace tandem
