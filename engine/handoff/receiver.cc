#include "engine/handoff/receiver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "engine/sequence.h"
#include "kvstore/kv_convert.h"

namespace tandem {

KvReceiver::KvReceiver(const EngineOptions& options, const Parts& parts)
    : options_(options),
      scheduler_(parts.scheduler),
      store_(parts.store),
      view_(parts.view),
      zone_(parts.zone),
      clock_(parts.clock) {}

absl::Status KvReceiver::Check(const ReserveRequest& request) const {
  if (request.model_fingerprint != options_.model_fingerprint) {
    return FailedPrecondition(
        "the peer's model {:016x} is not this worker's {:016x}: serve the same model on both",
        request.model_fingerprint, options_.model_fingerprint);
  }
  RETURN_IF_ERROR(request.layout.Validate());
  RETURN_IF_ERROR(CanConvert(request.layout.shape(), options_.layout.shape()));
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens < 1 || request.max_tokens < 1 || request.width < 1 ||
      prompt_tokens + request.max_tokens > options_.max_context_tokens) {
    return InvalidArgument(
        "a reservation for {} prompt tokens and {} more in {} rows: each must be at least 1, the "
        "tokens together at most {}",
        prompt_tokens, request.max_tokens, request.width, options_.max_context_tokens);
  }
  return scheduler_.CheckFits(SpecOfPromise(request, SequenceId()));
}

// The sequence by which the scheduler accounts for a reservation. It has no deadline: only the
// receiver knows whether a write is in flight, and the blocks must stay reserved until the payload
// has landed.
SequenceSpec KvReceiver::SpecOfPromise(const ReserveRequest& request, SequenceId promise) const {
  const auto prompt_tokens = static_cast<int32_t>(request.prompt.size());
  const int32_t stored = StoredTokens(request.prompt.size(), request.eviction);
  const int32_t most_output = request.max_tokens - 1;
  SequenceSpec spec = {.id = promise,
                       .prompt_tokens = stored,
                       .max_total_tokens = stored + most_output,
                       .evicted_tokens = prompt_tokens - stored,
                       .kept_tokens = stored < prompt_tokens ? stored + most_output : 0,
                       .output_share = request.eviction ? request.eviction->OutputShare() : 1,
                       .width = request.width,
                       .priority = request.priority,
                       .tenant = TenantKey(request.tenant)};
  // A copy, which may be turned off: the prefill worker's eviction stays as it is, and only a
  // sequence that is computed again evicts on this worker.
  std::optional<TokenEviction> eviction = request.eviction;
  KeepAllWhereEvictionDoesNotFit(scheduler_, spec, eviction);
  return spec;
}

// How many available blocks TakeBlocks will take for a prompt: new blocks, and idle blocks of the
// prefix cache.
int32_t KvReceiver::BlocksToTake(const PrefixKey& key, const ReserveRequest& request) const {
  const std::span<const int32_t> prompt = request.prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const int32_t stored = StoredTokens(prompt.size(), request.eviction);
  if (stored < prompt_tokens) return store_.layout().BlocksFor(stored);
  PrefixMatch match = store_.Match(key, prompt, prompt_tokens);
  if (const int64_t tail = match.device_tokens % options_.layout.block_tokens; tail != 0) {
    match = store_.Match(key, prompt, match.device_tokens - tail);
  }
  return store_.layout().BlocksFor(prompt_tokens) - match.device_blocks + match.idle_blocks;
}

// Fills the block table of a reservation: full blocks of the prompt that are cached, then new ones.
// Returns how many tokens are cached: none of a prompt whose KV is evicted, because the cache has
// no such KV.
int32_t KvReceiver::TakeBlocks(PrefixKey& key, Incoming& incoming) {
  const std::vector<int32_t>& prompt = incoming.request.prompt;
  const int64_t stored = StoredTokens(prompt.size(), incoming.request.eviction);
  const int64_t attached =
      stored < std::ssize(prompt) ? 0 : store_.Attach(key, prompt, stored, incoming.table);
  const int64_t cached_tokens = attached - attached % options_.layout.block_tokens;
  incoming.table.Truncate(cached_tokens);
  const absl::Status reserved = store_.Reserve(incoming.table, stored);
  TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
  return static_cast<int32_t>(cached_tokens);
}

absl::StatusOr<Reservation> KvReceiver::Reserve(WaitingReservation& waiting, SequenceId promise) {
  const ReserveRequest& request = waiting.request;
  const int32_t stored_tokens = StoredTokens(request.prompt.size(), request.eviction);
  waiting.key.Extend(request.prompt);
  view_.SetReservation(promise, BlocksToTake(waiting.key, request));
  const TimePoint now = clock_.Now();
  const SequenceSpec spec = SpecOfPromise(request, promise);
  RETURN_IF_ERROR(scheduler_.Reserve(spec, view_, now));
  Advance(waiting.state, ReceiveEvent::kAdmit);
  Incoming incoming{.promise = promise,
                    .table = BlockTable(options_.layout.block_tokens),
                    .request = std::move(waiting.request),
                    .state = waiting.state,
                    .broken = absl::OkStatus(),
                    .claimed_by = std::nullopt,
                    .evicts_again = spec.kept_tokens > 0,
                    .lease_end = now + options_.reservation_lease};
  incoming.deadline = incoming.request.deadline;
  const int32_t cached_tokens = TakeBlocks(waiting.key, incoming);
  const ReservationId id(next_id_++);
  const std::span<const int32_t> blocks = incoming.table.block_ids();
  ReadableKv reads = zone_.Open(id, {.blocks = {blocks.begin(), blocks.end()},
                                     .layout = incoming.request.layout,
                                     .prompt_tokens = stored_tokens,
                                     .cached_tokens = cached_tokens,
                                     .quality = incoming.request.quality});
  incoming_.emplace(id, std::move(incoming));
  return Reservation{.id = id,
                     .epoch = options_.epoch,
                     .cached_tokens = cached_tokens,
                     .stored_tokens = stored_tokens,
                     .lease = options_.reservation_lease,
                     .queued = now - waiting.asked,
                     .reads = std::move(reads)};
}

absl::Status KvReceiver::Claim(ReservationId id, const EngineRequest& request) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end() || place->second.state == ReceiveState::kDraining) {
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
      WidthOf(request) != reserved.width || request.cache_salt != reserved.cache_salt ||
      request.eviction != reserved.eviction) {
    return FailedPrecondition(
        "reservation {} is for another request: for {} prompt tokens and {} more in {} rows, not "
        "for {} and {} in {}",
        id, reserved.prompt.size(), reserved.max_tokens, reserved.width, request.prompt.size(),
        request.max_tokens, WidthOf(request));
  }
  incoming.claimed_by = request.id;
  incoming.deadline = request.deadline;
  zone_.Renew(id);
  return absl::OkStatus();
}

bool KvReceiver::IsComplete(ReservationId id) const {
  return incoming_.at(id).state == ReceiveState::kComplete;
}

bool KvReceiver::EvictsAgain(ReservationId id) const { return incoming_.at(id).evicts_again; }

std::optional<DType> KvReceiver::NarrowerDType(ReservationId id) const {
  const DType sent = incoming_.at(id).request.layout.dtype;
  return sent == options_.layout.dtype ? std::nullopt : std::optional(sent);
}

BlockTable KvReceiver::Take(ReservationId id, const SequenceSpec& successor) {
  const auto place = incoming_.find(id);
  TANDEM_CHECK(place != incoming_.end(), "took KV of a reservation that is gone");
  Advance(place->second.state, ReceiveEvent::kTake);
  const LandingZone::Closing closing = zone_.Close(id);
  TANDEM_CHECK(closing == LandingZone::Closing::kDone, "a write into committed KV");
  scheduler_.TransferTo(place->second.promise, successor);
  BlockTable table = std::move(place->second.table);
  incoming_.erase(place);
  return table;
}

void KvReceiver::Release(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end() || place->second.state == ReceiveState::kDraining) return;
  if (zone_.Close(id) == LandingZone::Closing::kDraining) {
    Advance(place->second.state, ReceiveEvent::kReleaseUnderWrite);
    ++num_draining_;
    place->second.claimed_by.reset();
    return;
  }
  Advance(place->second.state, ReceiveEvent::kRelease);
  Drop(id);
}

void KvReceiver::ReleaseUnclaimed(RequestId request) {
  const auto place = std::find_if(incoming_.begin(), incoming_.end(), [request](const auto& one) {
    return one.second.request.id == request && !one.second.claimed_by;
  });
  if (place == incoming_.end()) return;
  const ReservationId id = place->first;
  Release(id);
}

void KvReceiver::Drop(ReservationId id) {
  const auto place = incoming_.find(id);
  scheduler_.Finish(place->second.promise);
  incoming_.erase(place);
}

std::optional<RequestId> KvReceiver::ClaimedBy(ReservationId id) const {
  const auto place = incoming_.find(id);
  return place == incoming_.end() ? std::nullopt : place->second.claimed_by;
}

void KvReceiver::Arrived(const KvArrivedMessage& message) {
  const auto place = incoming_.find(message.reservation);
  // The reservation was released while this message was in the inbox.
  if (place == incoming_.end() || place->second.state == ReceiveState::kDraining) return;
  Advance(place->second.state,
          message.status.ok() ? ReceiveEvent::kComplete : ReceiveEvent::kBreak);
  place->second.broken = message.status;
}

void KvReceiver::Drained(ReservationId id) {
  const auto place = incoming_.find(id);
  if (place == incoming_.end()) return;
  Advance(place->second.state, ReceiveEvent::kDrain);
  --num_draining_;
  Drop(id);
}

std::vector<ExpiredReservation> KvReceiver::Expired(TimePoint now) {
  std::vector<ExpiredReservation> expired;
  for (auto& [id, incoming] : incoming_) {
    if (const auto one = CheckExpiry(id, incoming, now)) expired.push_back(*one);
  }
  return expired;
}

std::optional<ExpiredReservation> KvReceiver::CheckExpiry(ReservationId id, Incoming& incoming,
                                                          TimePoint now) {
  if (incoming.state == ReceiveState::kDraining) return std::nullopt;
  if (incoming.deadline <= now) {
    return ExpiredReservation{
        id, incoming.claimed_by,
        DeadlineExceeded("the deadline passed while the request waited for its KV")};
  }
  if (incoming.lease_end > now) return std::nullopt;
  // Frames and renewals extend the lease in the landing zone. The receiver asks for the new end
  // only when the end that it knows has passed, so that a frame costs it nothing.
  incoming.lease_end = zone_.LeaseEnd(id);
  if (incoming.lease_end > now) return std::nullopt;
  return ExpiredReservation{
      id, incoming.claimed_by,
      Unavailable("no KV for reservation {} in {:.0f} ms: the prefill worker seems lost", id,
                  ToMilliseconds(options_.reservation_lease))};
}

TimePoint KvReceiver::NextExpiry() const {
  TimePoint next = kNoDeadline;
  for (const auto& [id, incoming] : incoming_) {
    if (incoming.state == ReceiveState::kDraining) continue;
    next = std::min({next, incoming.lease_end, incoming.deadline});
  }
  return next;
}

void KvReceiver::ShutDown() {
  zone_.ShutDown();
  for (auto& [id, incoming] : incoming_) {
    if (incoming.state != ReceiveState::kDraining) zone_.Close(id);
    Advance(incoming.state, ReceiveEvent::kShutDown);
    scheduler_.Finish(incoming.promise);
  }
  incoming_.clear();
  num_draining_ = 0;
}

}  // namespace tandem
