// Hand-offs of KV: reservations and streams, from their messages and on time.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/retry_after.h"
#include "base/status.h"
#include "engine/engine_loop.h"

namespace tandem {
namespace {

absl::Status NoRoom(const AdmissionQueue& waiting, TimePoint now, std::string_view why,
                    Duration waited = {}) {
  const auto after = std::chrono::ceil<std::chrono::milliseconds>(waiting.RetryAfter(now, waited));
  absl::Status status =
      ResourceExhausted("no room for the KV of another request: {}; {} wait: retry in {} ms", why,
                        waiting.size(), after.count());
  SetRetryAfter(status, after);
  return status;
}

}  // namespace

void EngineLoop::Handle(ReserveMessage& message) {
  if (draining_) return message.done(ShuttingDown());
  if (absl::Status status = receiver_.Check(message.request); !status.ok()) {
    return message.done(status);
  }
  if (waiting_.full()) {
    ++counts_.handoff_counts.refused;
    return message.done(NoRoom(waiting_, clock_.Now(), "the queue is full"));
  }
  const WhenFull when_full = message.request.when_full;
  PrefixKey key = store_.NewKey(message.request.cache_salt);
  waiting_.Push({.ticket = message.ticket,
                 .request = std::move(message.request),
                 .key = std::move(key),
                 .done = std::move(message.done),
                 .asked = message.asked});
  AdmitWaiting();
  if (when_full == WhenFull::kWait) return;
  if (std::optional<WaitingReservation> left = waiting_.Take(message.ticket)) {
    ++counts_.handoff_counts.refused;
    TurnAway(*left, NoRoom(waiting_, clock_.Now(), "ask another worker"));
  }
}

void EngineLoop::Handle(CancelReserveMessage& message) {
  if (std::optional<WaitingReservation> left = waiting_.Take(message.ticket)) {
    TurnAway(*left, Cancelled("the reservation was no longer wanted"));
  }
}

void EngineLoop::AdmitWaiting() {
  while (!waiting_.empty()) {
    absl::StatusOr<Reservation> reservation =
        receiver_.Reserve(waiting_.Head(), SequenceId(next_sequence_++));
    if (absl::IsResourceExhausted(reservation.status())) return;
    WaitingReservation admitted = waiting_.TakeHead(clock_.Now());
    if (!reservation.ok()) {
      TurnAway(admitted, reservation.status());
    } else {
      admitted.done(*reservation);
    }
  }
}

void EngineLoop::TurnAway(WaitingReservation& waiting, const absl::Status& status) {
  Advance(waiting.state, ReceiveEvent::kTurnAway);
  waiting.done(status);
}

void EngineLoop::TurnAwayExpired(TimePoint now) {
  for (WaitingReservation& one : waiting_.TakeExpired(now)) {
    ++counts_.handoff_counts.refused;
    const Duration waited = now - one.asked;
    const double waited_ms = std::round(ToMilliseconds(waited));
    LogWarn("request={} waited {} ms for room for its KV, in vain", one.request.id, waited_ms);
    TurnAway(one, one.request.deadline <= now
                      ? DeadlineExceeded("the deadline passed after {} ms of waiting for room for "
                                         "the KV of the prompt",
                                         waited_ms)
                      : NoRoom(waiting_, now, fmt::format("none in {} ms", waited_ms), waited));
  }
}

void EngineLoop::TurnAllAway() {
  while (!waiting_.empty()) {
    WaitingReservation one = waiting_.TakeHead(clock_.Now());
    TurnAway(one, ShuttingDown());
  }
}

void EngineLoop::Handle(ReleaseMessage& message) {
  if (const std::optional<RequestId> claim = receiver_.ClaimedBy(message.reservation)) {
    return End(*requests_.at(*claim), Cancelled("its reservation was released"));
  }
  receiver_.Release(message.reservation);
}

void EngineLoop::Handle(KvArrivedMessage& message) {
  if (message.status.ok()) ++counts_.handoff_counts.received;
  receiver_.Arrived(message);
  const std::optional<RequestId> claim = receiver_.ClaimedBy(message.reservation);
  if (!claim) return;
  RequestState& request = *requests_.at(*claim);
  if (!message.status.ok()) return End(request, Annotate(message.status, "KV of the prompt"));
  StartDecode(request, message.at);
}

void EngineLoop::Handle(KvDrainedMessage& message) { receiver_.Drained(message.reservation); }

void EngineLoop::EndLapsedReservations(TimePoint now) {
  for (const Lapse& lapse : receiver_.Lapsed(now)) {
    LogWarn("reservation={} lapsed: {}", lapse.reservation, lapse.status.ToString());
    ++counts_.handoff_counts.lapsed;
    if (lapse.claimed_by) {
      End(*requests_.at(*lapse.claimed_by), lapse.status);
    } else {
      receiver_.Release(lapse.reservation);
    }
  }
}

// Requests that come while a long step runs wait for it to end, but not their reservations for a
// sign of life. No more are taken in than the inbox itself holds.
void EngineLoop::OpenStreamsOfArrivals() {
  if (inbox_.size() == 0 || early_.size() >= options_.inbox_capacity) return;
  for (Message& message : inbox_.Drain()) {
    if (auto* submit = std::get_if<SubmitMessage>(&message)) OpenStream(*submit);
    early_.push_back(std::move(message));
  }
}

void EngineLoop::OpenStream(SubmitMessage& message) {
  if (!message.target || message.outgoing) return;
  message.outgoing = sender_.Open(message.request.id, *message.target);
}

void EngineLoop::Handle(StreamEndedMessage& message) {
  const auto place = requests_.find(message.request);
  if (place == requests_.end() || !place->second->outgoing) return;
  RequestState& request = *place->second;
  const std::optional<absl::Status> end = sender_.Ended(request, message);
  if (!end) return;
  if (!end->ok()) return End(request, *end);
  ++counts_.handoff_counts.sent;
  End(request, {.reason = FinishReason::kHandedOff, .kv = sender_.Report(request, message.at)});
}

void EngineLoop::ReopenLostStreams(TimePoint now) {
  for (const RequestId id : sender_.TakeDue(now)) {
    const auto place = requests_.find(id);
    if (place == requests_.end() || !place->second->outgoing) continue;
    RequestState& request = *place->second;
    const absl::Status status = sender_.Reopen(*Find(request.sequences.front()), now);
    if (!status.ok()) End(request, status);
  }
}

}  // namespace tandem
