#include "engine/handoff/reservations.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/retry_after.h"
#include "base/status.h"

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

// The salt of the prefix cache for KV that arrives. KV that a lossy codec changed is not determined
// by its tokens alone, so it may be shared only with KV of the same quality.
std::string SaltFor(std::string salt, KvQuality quality) {
  if (quality != KvQuality::kExact) salt += fmt::format("\n{}", Name(quality));
  return salt;
}

}  // namespace

Reservations::Reservations(EngineCore& core)
    : core_(core),
      waiting_(core.options.max_waiting_reservations, core.options.max_reservation_wait) {}

void Reservations::Reserve(ReserveMessage& message) {
  if (draining_) return message.done(ShuttingDown());
  if (absl::Status status = core_.receiver.Check(message.request); !status.ok()) {
    return message.done(status);
  }
  if (waiting_.full()) {
    ++counts_.refused;
    return message.done(NoRoom(waiting_, core_.clock.Now(), "the queue is full"));
  }
  const WhenFull when_full = message.request.when_full;
  message.request.cache_salt =
      SaltFor(std::move(message.request.cache_salt), message.request.quality);
  PrefixKey key = core_.store.NewKey(message.request.cache_salt);
  waiting_.Push({.ticket = message.ticket,
                 .request = std::move(message.request),
                 .key = std::move(key),
                 .done = std::move(message.done),
                 .asked = message.asked});
  AdmitWaiting();
  if (when_full == WhenFull::kWait) return;
  if (std::optional<WaitingReservation> left = waiting_.Take(message.ticket)) {
    ++counts_.refused;
    Reject(*left, NoRoom(waiting_, core_.clock.Now(), "ask another worker"));
  }
}

void Reservations::Cancel(const CancelReserveMessage& message) {
  if (std::optional<WaitingReservation> left = waiting_.Take(message.ticket)) {
    Reject(*left, Cancelled("the reservation was no longer wanted"));
  }
}

void Reservations::AdmitWaiting() {
  while (!waiting_.empty()) {
    absl::StatusOr<Reservation> reservation =
        core_.receiver.Reserve(waiting_.Head(), core_.requests.NewSequenceId());
    if (absl::IsResourceExhausted(reservation.status())) return;
    WaitingReservation admitted = waiting_.TakeHead(core_.clock.Now());
    if (!reservation.ok()) {
      Reject(admitted, reservation.status());
    } else {
      admitted.done(*reservation);
    }
  }
}

void Reservations::Reject(WaitingReservation& waiting, const absl::Status& status) {
  Advance(waiting.state, ReceiveEvent::kReject);
  waiting.done(status);
}

void Reservations::RejectExpired(TimePoint now) {
  for (WaitingReservation& one : waiting_.TakeExpired(now)) {
    ++counts_.refused;
    const Duration waited = now - one.asked;
    const double waited_ms = std::round(ToMilliseconds(waited));
    LogWarn("request={} waited {} ms for room for its KV, in vain", one.request.id, waited_ms);
    Reject(one, one.request.deadline <= now
                    ? DeadlineExceeded("the deadline passed after {} ms of waiting for room for "
                                       "the KV of the prompt",
                                       waited_ms)
                    : NoRoom(waiting_, now, fmt::format("none in {} ms", waited_ms), waited));
  }
}

void Reservations::Drain() {
  draining_ = true;
  while (!waiting_.empty()) {
    WaitingReservation one = waiting_.TakeHead(core_.clock.Now());
    Reject(one, ShuttingDown());
  }
}

// A draining engine accepts decodes as well: the request was accepted when its blocks were
// reserved.
void Reservations::Decode(DecodeMessage& message) {
  DecodeRequest& decode = message.decode;
  if (absl::Status status = core_.requests.CheckNew(decode.request.id); !status.ok()) {
    return message.stream.Fail(status);
  }
  const ReservationId reservation = decode.reservation;
  EngineRequest& spec = decode.request;
  spec.cache_salt = SaltFor(std::move(spec.cache_salt), spec.quality);
  const absl::Status status = core_.receiver.Claim(reservation, decode.request);
  if (!status.ok()) return message.stream.Fail(status);
  auto request = std::make_unique<RequestState>(std::move(decode.request));
  request->handoff = IncomingKv{.awaiting = reservation,
                                .first_tokens = std::move(decode.first_tokens),
                                .hidden_bytes = core_.receiver.LandedBytes(reservation),
                                .sent_dtype = std::nullopt};
  request->prefilled = true;
  request->stream = std::move(message.stream);
  request->accepted = message.accepted;
  RequestState& added = core_.requests.Add(std::move(request));
  if (!added.search && added.spec.so_far.empty()) {
    const std::vector<SampledToken>& first_tokens = added.incoming()->first_tokens;
    for (size_t i = 0; i < first_tokens.size(); ++i) {
      added.last_reason = StopReasonOf(added.spec, first_tokens[i].token_id, 1);
      added.ended[i] = added.last_reason != FinishReason::kNone;
    }
    if (added.AllEnded()) return core_.requests.End(added, {.reason = added.last_reason});
  }
  if (core_.receiver.IsComplete(reservation)) StartDecode(added, added.accepted);
}

void Reservations::StartDecode(RequestState& request, TimePoint arrived) {
  IncomingKv& incoming = *request.incoming();
  const SequenceId id = core_.requests.NewSequenceId();
  incoming.sent_dtype = core_.receiver.NarrowerDType(*incoming.awaiting);
  incoming.received_bytes = core_.receiver.LandedBytes(*incoming.awaiting);
  const int32_t stored = StoredTokens(request.spec.prompt.size(), request.spec.eviction);
  request.evicts_again = core_.receiver.EvictsAgain(*incoming.awaiting);
  SequenceSpec spec = SpecOfStored(id, request.spec, stored);
  if (!request.evicts_again) spec.kept_tokens = 0;
  BlockTable table = core_.receiver.Take(*incoming.awaiting, spec);
  incoming.awaiting.reset();
  request.stages.wait_kv = std::max(Duration{}, arrived - request.accepted);
  Sequence& root = core_.requests.AddSequence(request, id);
  root.tables.push_back(std::move(table));
  root.evicted_tokens = request.prompt_tokens() - stored;
  request.counts.evicted_tokens = root.evicted_tokens;
  if (root.evicted_tokens == 0) {
    core_.store.Insert(root.key, root.rows.front().tokens, request.prompt_tokens(),
                       root.tables.front());
  }
  if (!request.spec.so_far.empty()) return core_.choices.ResumeFrom(root);
  core_.scheduler.Activate(id);
  if (request.search) {
    core_.choices.AdvanceBeams(root, incoming.first_tokens);
  } else {
    core_.choices.Fork(root, incoming.first_tokens);
  }
}

void Reservations::Release(const ReleaseMessage& message) {
  if (const RequestId* request = std::get_if<RequestId>(&message.what)) {
    if (std::optional<WaitingReservation> left = waiting_.Take(*request)) {
      return Reject(*left, Cancelled("the reservation was no longer wanted"));
    }
    return core_.receiver.ReleaseUnclaimed(*request);
  }
  const ReservationId reservation = std::get<ReservationId>(message.what);
  if (const std::optional<RequestId> claim = core_.receiver.ClaimedBy(reservation)) {
    return core_.requests.End(core_.requests.Get(*claim),
                              Cancelled("its reservation was released"));
  }
  core_.receiver.Release(reservation);
}

void Reservations::Arrived(const KvArrivedMessage& message) {
  if (message.status.ok()) ++counts_.received;
  core_.receiver.Arrived(message);
  const std::optional<RequestId> claim = core_.receiver.ClaimedBy(message.reservation);
  if (!claim) return;
  RequestState& request = core_.requests.Get(*claim);
  if (!message.status.ok()) {
    return core_.requests.End(request, Annotate(message.status, "KV of the prompt"));
  }
  StartDecode(request, message.at);
}

void Reservations::Drained(const KvDrainedMessage& message) {
  core_.receiver.Drained(message.reservation);
}

void Reservations::ActOnTime(TimePoint now) {
  EndExpired(now);
  RejectExpired(now);
}

void Reservations::EndExpired(TimePoint now) {
  for (const ExpiredReservation& expired : core_.receiver.Expired(now)) {
    LogWarn("reservation={} expired: {}", expired.reservation, expired.status.ToString());
    ++counts_.lapsed;
    if (expired.claimed_by) {
      core_.requests.End(core_.requests.Get(*expired.claimed_by), expired.status);
    } else {
      core_.receiver.Release(expired.reservation);
    }
  }
}

TimePoint Reservations::NextExpiry() const {
  return std::min(core_.receiver.NextExpiry(), waiting_.NextExpiry());
}

void Reservations::AddTo(EngineStats& stats) const {
  stats.reservations = core_.receiver.num_reservations();
  stats.waiting_reservations = waiting_.size();
  stats.draining_reservations = core_.receiver.num_draining();
  stats.handoff_counts.received = counts_.received;
  stats.handoff_counts.lapsed = counts_.lapsed;
  stats.handoff_counts.refused = counts_.refused;
}

}  // namespace tandem
