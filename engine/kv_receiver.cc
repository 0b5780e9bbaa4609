#include "engine/kv_receiver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

KvReceiver::KvReceiver(const EngineOptions& options, const Parts& parts)
    : options_(options),
      scheduler_(parts.scheduler),
      store_(parts.store),
      view_(parts.view),
      zone_(parts.zone),
      clock_(parts.clock),
      fingerprint_(options.layout.Fingerprint(options.model_fingerprint)) {}

absl::Status KvReceiver::CheckRequest(const ReserveRequest& request) const {
  if (request.layout_fingerprint != fingerprint_) {
    return FailedPrecondition(
        "the peer's KV layout {:016x} is not this worker's {:016x}: serve the same model with the "
        "same block size and KV dtype on both",
        request.layout_fingerprint, fingerprint_);
  }
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens < 1 || request.max_tokens < 1 || request.width < 1 ||
      prompt_tokens + request.max_tokens > options_.max_context_tokens) {
    return InvalidArgument(
        "a reservation for {} prompt tokens and {} more in {} rows: each must be at least 1, the "
        "tokens together at most {}",
        prompt_tokens, request.max_tokens, request.width, options_.max_context_tokens);
  }
  return absl::OkStatus();
}

// Blocks of the prompt: full ones that are cached, and new ones behind them. How many are cached.
int32_t KvReceiver::TakeBlocks(PrefixKey& key, Incoming& incoming) {
  const std::vector<int32_t>& prompt = incoming.request.prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t attached = store_.Attach(key, prompt, prompt_tokens, incoming.table);
  const auto cached_blocks = static_cast<int32_t>(attached / options_.layout.block_tokens);
  incoming.table.Truncate(int64_t{cached_blocks} * options_.layout.block_tokens);
  const absl::Status reserved = store_.Reserve(incoming.table, prompt_tokens);
  TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
  return cached_blocks;
}

// The scheduler is told of no deadline: only here is it known whether a write is in flight, and
// until that has landed the promise must stand.
absl::StatusOr<Reservation> KvReceiver::Reserve(ReserveRequest request, SequenceId promise) {
  RETURN_IF_ERROR(CheckRequest(request));
  const auto prompt_tokens = static_cast<int32_t>(request.prompt.size());
  PrefixKey key = store_.NewKey(request.cache_salt);
  key.Extend(request.prompt);
  const PrefixMatch match = store_.Match(key, request.prompt, prompt_tokens);
  const auto cached = static_cast<int32_t>(match.device_tokens / options_.layout.block_tokens);
  view_.SetReservation(promise,
                       store_.layout().BlocksFor(prompt_tokens) - cached + match.idle_blocks);
  const TimePoint now = clock_.Now();
  RETURN_IF_ERROR(scheduler_.Reserve({.id = promise,
                                      .prompt_tokens = prompt_tokens,
                                      .max_total_tokens = prompt_tokens + request.max_tokens - 1,
                                      .width = request.width,
                                      .priority = request.priority,
                                      .tenant = TenantKey(request.tenant)},
                                     view_, now));
  Incoming incoming{.promise = promise,
                    .table = BlockTable(options_.layout.block_tokens),
                    .request = std::move(request),
                    .lease_end = now + options_.reservation_lease};
  incoming.deadline = incoming.request.deadline;
  incoming.cached_blocks = TakeBlocks(key, incoming);
  const ReservationId id(next_id_++);
  zone_.Open(id, incoming.table.block_ids(), incoming.cached_blocks);
  const Reservation reservation{.id = id,
                                .epoch = options_.epoch,
                                .cached_blocks = incoming.cached_blocks,
                                .lease = options_.reservation_lease};
  incoming_.emplace(id, std::move(incoming));
  return reservation;
}

absl::Status KvReceiver::Claim(ReservationId id, const EngineRequest& request) {
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
  const ReserveRequest& reserved = incoming.request;
  if (request.prompt != reserved.prompt || request.max_tokens > reserved.max_tokens ||
      request.width() != reserved.width || request.cache_salt != reserved.cache_salt) {
    return FailedPrecondition(
        "reservation {} is for another request: for {} prompt tokens and {} more in {} rows, not "
        "for {} and {} in {}",
        id, reserved.prompt.size(), reserved.max_tokens, reserved.width, request.prompt.size(),
        request.max_tokens, request.width());
  }
  incoming.claimed_by = request.id;
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

std::optional<RequestId> KvReceiver::ClaimedBy(ReservationId id) const {
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
