#include "engine/handoff/landing_zone.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxCompleted = 1024;

// Only this frame is dropped, and the stream continues.
template <typename... Args>
absl::Status Aborted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kAborted, format, std::forward<Args>(args)...);
}
template <typename... Args>
absl::Status AlreadyExists(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kAlreadyExists, format, std::forward<Args>(args)...);
}
template <typename... Args>
absl::Status PermissionDenied(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kPermissionDenied, format, std::forward<Args>(args)...);
}

absl::Status NoSuchReservation(uint64_t stream) {
  return NotFound("reservation {} does not exist: it lapsed or was released", stream);
}

}  // namespace

LandingZone::LandingZone(const Options& options, const KvPoolView& pool, Conversion conversion,
                         const Clock& clock, Inbox& inbox)
    : options_(options),
      pool_(pool),
      clock_(clock),
      inbox_(inbox),
      slots_(std::move(conversion.slots)),
      converter_(std::move(conversion.converter)) {}

void LandingZone::Open(ReservationId id, LandingPlan plan) {
  const TimePoint now = clock_.Now();
  auto landing = std::make_unique<Landing>();
  landing->direct = plan.layout == options_.layout;
  landing->first_block = static_cast<uint32_t>(plan.cached_tokens / plan.layout.block_tokens);
  landing->num_blocks = static_cast<uint32_t>(plan.layout.BlocksFor(plan.prompt_tokens));
  landing->first_block = std::min(landing->first_block, landing->num_blocks);
  const size_t per_layer = landing->num_blocks - landing->first_block;
  landing->extents.assign(per_layer * static_cast<size_t>(pool_.num_layers), Extent::kEmpty);
  landing->plan = std::move(plan);
  landing->lease_end = now + options_.lease;
  absl::MutexLock lock(&mutex_);
  TANDEM_CHECK(id > latest_, "a reservation that was opened before");
  latest_ = id;
  landings_.emplace(id, std::move(landing));
}

LandingZone::Closing LandingZone::Close(ReservationId id) {
  absl::MutexLock lock(&mutex_);
  const auto place = landings_.find(id);
  TANDEM_CHECK(place != landings_.end() && !place->second->closed, "closed a landing that is not");
  DropVerified(id, *place->second);
  if (place->second->num_writing > 0) {
    place->second->closed = true;
    return Closing::kDraining;
  }
  if (place->second->committed) Remember(id);
  landings_.erase(place);
  return Closing::kDone;
}

void LandingZone::DropVerified(ReservationId id, Landing& landing) {
  if (landing.num_verified == 0) return;
  std::erase_if(verified_, [&](const FrameHeader& header) {
    mutex_.AssertHeld();
    if (ReservationId(header.stream) != id) return false;
    --landing.num_verified;
    Settle(header, Cancelled("the reservation is closed"));
    return true;
  });
}

void LandingZone::Remember(ReservationId completed) {
  completed_.insert(completed);
  completed_in_order_.push_back(completed);
  if (completed_in_order_.size() <= kMaxCompleted) return;
  completed_.erase(completed_in_order_.front());
  completed_in_order_.pop_front();
}

void LandingZone::ShutDown() {
  absl::MutexLock lock(&mutex_);
  shut_down_ = true;
}

TimePoint LandingZone::LeaseEnd(ReservationId id) const {
  absl::MutexLock lock(&mutex_);
  return landings_.at(id)->lease_end;
}

uint64_t LandingZone::LandedBytes(ReservationId id) const {
  absl::MutexLock lock(&mutex_);
  const Landing& landing = *landings_.at(id);
  if (landing.extents.empty()) return 0;
  const LandingPlan& plan = landing.plan;
  const int64_t bytes = (plan.prompt_tokens - plan.cached_tokens) * plan.layout.BytesPerToken();
  const int64_t landed = landing.num_landed + landing.num_verified;
  return static_cast<uint64_t>(bytes * landed / landing.num_extents());
}

void LandingZone::Renew(ReservationId id) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  landings_.at(id)->lease_end = now + options_.lease;
}

absl::StatusOr<std::span<std::byte>> LandingZone::Prepare(const FrameHeader& header) {
  MakeRoom();
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Landing* const landing, Find(header.stream, header.epoch, now));
  ASSIGN_OR_RETURN(const size_t index, ExtentIndex(header, *landing));
  Extent& extent = landing->extents[index];
  if (extent == Extent::kWriting) {
    return Aborted("layer {}, block {} of reservation {} is being written already", header.layer,
                   header.block, header.stream);
  }
  landing->lease_end = now + options_.lease;
  ASSIGN_OR_RETURN(std::byte* const bytes, PlaceFor(header, *landing, index));
  if (extent == Extent::kLanded) --landing->num_landed;
  extent = Extent::kWriting;
  ++landing->num_writing;
  return std::span(bytes, header.payload_bytes);
}

absl::StatusOr<std::byte*> LandingZone::PlaceFor(const FrameHeader& header, Landing& landing,
                                                 size_t index) {
  if (landing.direct) {
    return pool_.Extent(static_cast<int32_t>(header.layer), landing.plan.blocks[header.block]);
  }
  const std::optional<int32_t> slot = slots_.Take();
  // What is dropped is missing at the commit and comes again, when others are through.
  if (!slot) return Aborted("all slots for KV of another layout are being written");
  landing.slots.emplace(index, *slot);
  return slots_.At(*slot);
}

LandingZone::Landing& LandingZone::Writing(const FrameHeader& header) {
  const auto place = landings_.find(ReservationId(header.stream));
  TANDEM_CHECK(place != landings_.end(), "a frame landed that was not prepared");
  const absl::StatusOr<size_t> index = ExtentIndex(header, *place->second);
  TANDEM_CHECK(index.ok() && place->second->extents[*index] == Extent::kWriting,
               "a frame landed that was not prepared");
  return *place->second;
}

void LandingZone::Landed(const FrameHeader& header, const absl::Status& status) {
  const TimePoint now = clock_.Now();
  bool drained = false;
  {
    absl::MutexLock lock(&mutex_);
    Landing& landing = Writing(header);
    if (landing.lease_end > now) landing.lease_end = now + options_.lease;
    if (status.ok() && !landing.direct && !landing.closed) {
      ++landing.num_verified;
      verified_.push_back(header);
      return;
    }
    drained = Settle(header, status);
  }
  if (drained) inbox_.PushAlways(KvDrainedMessage{ReservationId(header.stream)});
}

bool LandingZone::Settle(const FrameHeader& header, const absl::Status& status) {
  Landing& landing = Writing(header);
  const size_t index = *ExtentIndex(header, landing);
  landing.extents[index] = status.ok() ? Extent::kLanded : Extent::kEmpty;
  if (status.ok()) ++landing.num_landed;
  --landing.num_writing;
  if (const auto slot = landing.slots.find(index); slot != landing.slots.end()) {
    slots_.GiveBack(slot->second);
    landing.slots.erase(slot);
  }
  if (!landing.closed || landing.num_writing > 0) return false;
  landings_.erase(ReservationId(header.stream));
  return true;
}

// Converting the verified payloads frees their slots.
void LandingZone::MakeRoom() {
  {
    absl::MutexLock lock(&mutex_);
    if (!slots_.all_taken() || verified_.empty()) return;
  }
  ConvertVerified();
}

// The conversion runs without the lock. While extents are being written no other thread touches
// their slots, their tokens or the plans of their landings.
void LandingZone::ConvertVerified() {
  std::vector<FrameHeader> frames;
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &LandingZone::nobody_converts));
    if (verified_.empty()) return;
    frames = TakeVerified();
    converting_ = true;
  }
  const absl::Status status = converter_->Run();
  if (!status.ok()) {
    LogError("{} extents of KV could not be converted: {}", frames.size(), status.ToString());
  }
  std::vector<ReservationId> drained;
  {
    absl::MutexLock lock(&mutex_);
    converting_ = false;
    for (const FrameHeader& header : frames) {
      if (Settle(header, status)) drained.emplace_back(header.stream);
    }
  }
  for (const ReservationId id : drained) inbox_.PushAlways(KvDrainedMessage{id});
}

std::vector<FrameHeader> LandingZone::TakeVerified() {
  for (const FrameHeader& header : verified_) {
    Landing& landing = Writing(header);
    const LandingPlan& plan = landing.plan;
    const std::byte* slot = slots_.At(landing.slots.at(*ExtentIndex(header, landing)));
    converter_->Add(plan.layout,
                    {.bytes = std::span(slot, header.payload_bytes),
                     .layer = static_cast<int32_t>(header.layer),
                     .block = static_cast<int32_t>(header.block)},
                    {.begin = plan.cached_tokens, .end = plan.prompt_tokens}, plan.blocks);
    --landing.num_verified;
  }
  return std::exchange(verified_, {});
}

CommitAnswer LandingZone::Commit(const FrameHeader& header) {
  ConvertVerified();
  const TimePoint now = clock_.Now();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<Landing*> found = Find(header.stream, header.epoch, now);
    // The acknowledgement was lost, so it is sent again.
    if (absl::IsAlreadyExists(found.status())) return {};
    if (!found.ok()) return {.status = found.status(), .missing = {}};
    Landing& landing = **found;
    landing.lease_end = now + options_.lease;
    const int64_t expected = landing.num_extents();
    if (header.frames != static_cast<uint64_t>(expected)) {
      status = DataLoss("reservation {} was committed with {} frames, it has {} extents",
                        header.stream, header.frames, expected);
    } else if (landing.num_landed < expected) {
      return {.status = absl::OkStatus(), .missing = MissingOf(landing)};
    }
    landing.committed = status.ok();
    landing.broken = status;
  }
  inbox_.PushAlways(KvArrivedMessage{ReservationId(header.stream), status, now});
  return {.status = status, .missing = {}};
}

absl::Status LandingZone::Renewed(uint64_t stream, uint64_t epoch) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<Landing*> found = Find(stream, epoch, now);
  // A complete reservation waits for its request, not for its sender.
  if (absl::IsAlreadyExists(found.status())) return absl::OkStatus();
  RETURN_IF_ERROR(found.status());
  (*found)->lease_end = now + options_.lease;
  return absl::OkStatus();
}

absl::StatusOr<LandingZone::Landing*> LandingZone::Find(uint64_t stream, uint64_t epoch,
                                                        TimePoint now) {
  if (shut_down_) return Unavailable("this worker has shut down: retry elsewhere");
  if (epoch != options_.epoch) {
    return PermissionDenied("a frame for epoch {}, this worker's is {}: it was restarted", epoch,
                            options_.epoch);
  }
  const ReservationId id(stream);
  if (stream == 0 || id > latest_) {
    return PermissionDenied("reservation {} was never given out", stream);
  }
  const auto place = landings_.find(id);
  const bool known = place != landings_.end() && !place->second->closed;
  if (completed_.contains(id) || (known && place->second->committed)) {
    return AlreadyExists("reservation {} is complete: it takes no more frames", stream);
  }
  if (!known) return NoSuchReservation(stream);
  RETURN_IF_ERROR(place->second->broken);
  // The engine thread will notice the expired lease as soon as its step has ended.
  if (place->second->lease_end <= now) return NoSuchReservation(stream);
  return place->second.get();
}

// The sender learned the layout and the cached tokens from its reservation. A peer that names
// another extent did not make the reservation.
absl::StatusOr<size_t> LandingZone::ExtentIndex(const FrameHeader& header,
                                                const Landing& landing) const {
  const KvLayout& layout = landing.plan.layout;
  const auto layers = static_cast<uint32_t>(layout.num_layers);
  if (header.layer >= layers || header.block >= landing.num_blocks) {
    return PermissionDenied("layer {}, block {}: reservation {} has {} layers of {} blocks",
                            header.layer, header.block, header.stream, layers, landing.num_blocks);
  }
  if (header.block < landing.first_block) {
    return PermissionDenied("block {} of reservation {}: its first {} are cached here",
                            header.block, header.stream, landing.first_block);
  }
  if (header.payload_bytes != static_cast<uint64_t>(layout.ExtentBytes())) {
    return PermissionDenied(
        "a payload of {} bytes, an extent of the layout that was reserved for has {}",
        header.payload_bytes, layout.ExtentBytes());
  }
  const size_t per_layer = landing.num_blocks - landing.first_block;
  return header.layer * per_layer + (header.block - landing.first_block);
}

std::vector<MissingExtent> LandingZone::MissingOf(const Landing& landing) const {
  std::vector<MissingExtent> missing;
  const uint32_t per_layer = landing.num_blocks - landing.first_block;
  for (uint32_t index = 0; index < landing.extents.size(); ++index) {
    if (landing.extents[index] == Extent::kLanded) continue;
    missing.push_back(
        {.layer = index / per_layer, .block = landing.first_block + index % per_layer});
  }
  return missing;
}

}  // namespace tandem
