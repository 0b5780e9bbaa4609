#include "bench/simulator/reservations.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/retry_after.h"
#include "base/status.h"
#include "engine/sequence.h"

namespace tandem::simulator {
namespace {

absl::Status NoRoom(const AdmissionQueue& waiting, TimePoint now, std::string_view why,
                    Duration waited = {}) {
  const auto after = std::chrono::ceil<std::chrono::milliseconds>(waiting.RetryAfter(now, waited));
  absl::Status status = ResourceExhausted("no room for the KV of another request: {}", why);
  SetRetryAfter(status, after);
  return status;
}

SequenceSpec SpecOfPromise(SequenceId id, const ReserveRequest& request) {
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  return {.id = id,
          .prompt_tokens = prompt,
          .max_total_tokens = prompt + request.max_tokens - 1,
          .width = request.width,
          .priority = request.priority,
          .tenant = TenantKey(request.tenant)};
}

}  // namespace

SimulatedReservations::SimulatedReservations(const WorkerLimits& limits, Parts parts)
    : parts_(std::move(parts)),
      waiting_(limits.max_waiting_reservations, limits.max_reservation_wait) {}

void SimulatedReservations::Reserve(ReserveTicket ticket, ReserveRequest request, PrefixKey key,
                                    TimePoint asked, Done done) {
  const absl::Status fits = parts_.scheduler.CheckFits(SpecOfPromise({}, request));
  if (!fits.ok()) return done(fits);
  if (waiting_.full()) {
    ++counts_.refused;
    return done(NoRoom(waiting_, parts_.timeline.Now(), "the queue is full"));
  }
  const WhenFull when_full = request.when_full;
  waiting_.Push({.ticket = ticket,
                 .request = std::move(request),
                 .key = std::move(key),
                 .done = std::move(done),
                 .asked = asked});
  AdmitWaiting();
  if (when_full == WhenFull::kWait) return;
  if (std::optional<WaitingReservation> left = waiting_.Take(ticket)) {
    ++counts_.refused;
    left->done(NoRoom(waiting_, parts_.timeline.Now(), "ask another worker"));
  }
}

void SimulatedReservations::Cancel(ReserveTicket ticket) {
  if (std::optional<WaitingReservation> left = waiting_.Take(ticket)) {
    left->done(Cancelled("the reservation was no longer wanted"));
  }
}

absl::StatusOr<Reservation> SimulatedReservations::Take(const WaitingReservation& waiting) {
  const ReserveRequest& request = waiting.request;
  const SequenceSpec spec = SpecOfPromise(parts_.new_id(), request);
  const int32_t cached = parts_.store.PlanReservation(spec.id, waiting.key, spec.prompt_tokens);
  const TimePoint now = parts_.timeline.Now();
  RETURN_IF_ERROR(parts_.scheduler.Reserve(spec, parts_.store, now));
  SimulatedSequence& sequence = parts_.store.Add(
      std::make_unique<SimulatedSequence>(SimulatedSequence{.id = spec.id,
                                                            .prompt_tokens = spec.prompt_tokens,
                                                            .max_tokens = request.max_tokens,
                                                            .prefilled = true,
                                                            .key = waiting.key}));
  parts_.store.Reserve(sequence, cached);
  const ReservationId id(next_id_++);
  incoming_.emplace(id, Incoming{.sequence = spec.id, .request = request.id});
  return Reservation{.id = id,
                     .cached_tokens = cached,
                     .lease = std::chrono::seconds(3),
                     .queued = now - waiting.asked};
}

void SimulatedReservations::AdmitWaiting() {
  while (!waiting_.empty()) {
    absl::StatusOr<Reservation> reservation = Take(waiting_.Head());
    if (absl::IsResourceExhausted(reservation.status())) return;
    const WaitingReservation admitted = waiting_.TakeHead(parts_.timeline.Now());
    admitted.done(std::move(reservation));
  }
}

absl::StatusOr<SimulatedSequence*> SimulatedReservations::Claim(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end()) {
    return NotFound("reservation {} does not exist: it was released", id);
  }
  place->second.claimed = true;
  return &parts_.store.Get(place->second.sequence);
}

void SimulatedReservations::Ready(ReservationId id) {
  incoming_.at(id).ready = true;
  StartIfComplete(id);
}

void SimulatedReservations::Arrived(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end()) return;
  ++counts_.received;
  place->second.arrived = parts_.timeline.Now();
  StartIfComplete(id);
}

void SimulatedReservations::StartIfComplete(ReservationId id) {
  const auto place = incoming_.find(id);
  const Incoming incoming = place->second;
  if (!incoming.ready || !incoming.arrived) return;
  incoming_.erase(place);
  parts_.start_decode(parts_.store.Get(incoming.sequence), *incoming.arrived);
}

std::optional<SequenceId> SimulatedReservations::Release(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end()) return std::nullopt;
  const Incoming incoming = place->second;
  if (incoming.claimed) return incoming.sequence;
  incoming_.erase(place);
  parts_.scheduler.Finish(incoming.sequence);
  parts_.store.Remove(incoming.sequence);
  return std::nullopt;
}

void SimulatedReservations::ReleaseOf(RequestId request) {
  if (std::optional<WaitingReservation> left = waiting_.Take(request)) {
    return left->done(Cancelled("the reservation was no longer wanted"));
  }
  const auto place = std::ranges::find_if(incoming_, [request](const auto& one) {
    return one.second.request == request && !one.second.claimed;
  });
  if (place != incoming_.end()) (void)Release(place->first);
}

void SimulatedReservations::Forget(SequenceId id) {
  absl::erase_if(incoming_, [id](const auto& one) { return one.second.sequence == id; });
}

void SimulatedReservations::ActOnTime() {
  const TimePoint now = parts_.timeline.Now();
  for (const WaitingReservation& one : waiting_.TakeExpired(now)) {
    ++counts_.refused;
    one.done(one.request.deadline <= now
                 ? DeadlineExceeded("the deadline passed while the request waited for room")
                 : NoRoom(waiting_, now, "none became free in time", now - one.asked));
  }
}

void SimulatedReservations::AddTo(EngineStats& stats) const {
  stats.reservations = static_cast<int32_t>(incoming_.size());
  stats.waiting_reservations = waiting_.size();
  stats.handoff_counts.received = counts_.received;
  stats.handoff_counts.refused = counts_.refused;
}

}  // namespace tandem::simulator
