#include "engine/kv_receiver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

KvReceiver::KvReceiver(const EngineOptions& options, Scheduler& scheduler, KvStore& store,
                       LandingZone& zone, const Clock& clock)
    : options_(options),
      scheduler_(scheduler),
      store_(store),
      zone_(zone),
      clock_(clock),
      fingerprint_(options.layout.Fingerprint(options.model_fingerprint)) {}

absl::Status KvReceiver::CheckRequest(const ReserveRequest& request) const {
  if (request.layout_fingerprint != fingerprint_) {
    return FailedPrecondition(
        "the peer's KV layout {:016x} is not this worker's {:016x}: serve the same model with the "
        "same block size and KV dtype on both",
        request.layout_fingerprint, fingerprint_);
  }
  const int64_t total = int64_t{request.prompt_tokens} + request.max_tokens;
  if (request.prompt_tokens < 1 || request.max_tokens < 1 || total > options_.max_context_tokens) {
    return InvalidArgument(
        "a reservation for {} prompt tokens and {} more: each must be at least 1, together at most "
        "{}",
        request.prompt_tokens, request.max_tokens, options_.max_context_tokens);
  }
  return absl::OkStatus();
}

// The scheduler is told of no deadline: only here is it known whether a write is in flight, and
// until that has landed the promise must stand.
absl::StatusOr<Reservation> KvReceiver::Reserve(const ReserveRequest& request, SequenceId promise) {
  RETURN_IF_ERROR(CheckRequest(request));
  RETURN_IF_ERROR(
      scheduler_.Reserve({.id = promise,
                          .prompt_tokens = request.prompt_tokens,
                          .max_total_tokens = request.prompt_tokens + request.max_tokens - 1,
                          .priority = request.priority}));
  Incoming incoming{.promise = promise,
                    .table = BlockTable(options_.layout.block_tokens),
                    .prompt_tokens = request.prompt_tokens,
                    .max_tokens = request.max_tokens,
                    .lease_end = clock_.Now() + options_.reservation_lease,
                    .deadline = request.deadline};
  const absl::Status reserved = incoming.table.Reserve(store_.pool(), request.prompt_tokens);
  TANDEM_CHECK(reserved.ok(), "the scheduler promised blocks that the pool does not have");
  const ReservationId id(next_id_++);
  zone_.Open(id, incoming.table.block_ids());
  incoming_.emplace(id, std::move(incoming));
  return Reservation{.id = id, .epoch = options_.epoch, .lease = options_.reservation_lease};
}

absl::Status KvReceiver::Claim(ReservationId id, SequenceId sequence,
                               const EngineRequest& request) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end() || place->second.state == State::kDraining) {
    return NotFound("reservation {} does not exist: it lapsed or was released", id);
  }
  Incoming& incoming = place->second;
  if (incoming.claimed_by) return FailedPrecondition("reservation {} is claimed already", id);
  if (absl::Status broken = incoming.broken; !broken.ok()) {
    Release(id);
    return broken;
  }
  if (std::ssize(request.prompt) != incoming.prompt_tokens ||
      request.max_tokens > incoming.max_tokens) {
    return FailedPrecondition(
        "reservation {} is for {} prompt tokens and {} more, not for {} and {}", id,
        incoming.prompt_tokens, incoming.max_tokens, request.prompt.size(), request.max_tokens);
  }
  incoming.claimed_by = sequence;
  incoming.deadline = request.deadline;
  incoming.lease_end = clock_.Now() + options_.reservation_lease;
  return absl::OkStatus();
}

bool KvReceiver::IsComplete(ReservationId id) const {
  return incoming_.at(id).state == State::kComplete;
}

BlockTable KvReceiver::Take(ReservationId id, const SequenceSpec& heir) {
  const auto place = incoming_.find(id);
  TANDEM_CHECK(place != incoming_.end() && place->second.state == State::kComplete,
               "took KV that is not complete");
  const LandingZone::Closing closing = zone_.Close(id);
  TANDEM_CHECK(closing == LandingZone::Closing::kDone, "a write into committed KV");
  scheduler_.PassOn(place->second.promise, heir);
  BlockTable table = std::move(place->second.table);
  incoming_.erase(place);
  return table;
}

void KvReceiver::Release(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end() || place->second.state == State::kDraining) return;
  if (zone_.Close(id) == LandingZone::Closing::kDraining) {
    place->second.state = State::kDraining;
    place->second.claimed_by.reset();
    return;
  }
  scheduler_.Finish(place->second.promise);
  incoming_.erase(place);
}

std::optional<SequenceId> KvReceiver::ClaimedBy(ReservationId id) const {
  const auto place = incoming_.find(id);
  return place == incoming_.end() ? std::nullopt : place->second.claimed_by;
}

void KvReceiver::Arrived(const KvArrivedMessage& message) {
  const auto place = incoming_.find(message.reservation);
  if (place == incoming_.end() || place->second.state != State::kAwaited) return;
  place->second.state = message.status.ok() ? State::kComplete : State::kBroken;
  place->second.broken = message.status;
}

void KvReceiver::Drained(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end()) return;
  TANDEM_CHECK(place->second.state == State::kDraining, "drained what was not closed");
  scheduler_.Finish(place->second.promise);
  incoming_.erase(place);
}

std::vector<Lapse> KvReceiver::Lapsed(TimePoint now) {
  std::vector<Lapse> lapsed;
  for (auto& [id, incoming] : incoming_) {
    if (std::optional<Lapse> lapse = LapseOf(id, incoming, now)) lapsed.push_back(*lapse);
  }
  return lapsed;
}

std::optional<Lapse> KvReceiver::LapseOf(ReservationId id, Incoming& incoming, TimePoint now) {
  if (incoming.state == State::kDraining) return std::nullopt;
  if (incoming.deadline <= now) {
    return Lapse{id, incoming.claimed_by,
                 DeadlineExceeded("the deadline passed while the request waited for its KV")};
  }
  if (incoming.lease_end > now) return std::nullopt;
  // Frames renew the lease; they are asked after only here, not told one by one.
  incoming.lease_end =
      std::max(incoming.lease_end, zone_.LatestFrame(id) + options_.reservation_lease);
  if (incoming.lease_end > now) return std::nullopt;
  return Lapse{id, incoming.claimed_by,
               Unavailable("no KV for reservation {} in {} ms: the prefill worker seems lost", id,
                           ToMilliseconds(options_.reservation_lease))};
}

TimePoint KvReceiver::NextLapse() const {
  TimePoint next = kNoDeadline;
  for (const auto& [id, incoming] : incoming_) {
    if (incoming.state == State::kDraining) continue;
    next = std::min({next, incoming.lease_end, incoming.deadline});
  }
  return next;
}

void KvReceiver::ShutDown() {
  zone_.ShutDown();
  for (auto& [id, incoming] : incoming_) {
    if (incoming.state != State::kDraining) zone_.Close(id);
    scheduler_.Finish(incoming.promise);
  }
  incoming_.clear();
}

}  // namespace tandem
