#include "engine/landing_zone.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

LandingZone::LandingZone(const KvPoolView& pool, uint64_t epoch, const Clock& clock, Inbox& inbox)
    : pool_(pool), epoch_(epoch), clock_(clock), inbox_(inbox) {}

void LandingZone::Open(ReservationId id, std::span<const int32_t> blocks, int32_t cached_blocks) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  Landing& landing = landings_[id];
  landing.blocks.assign(blocks.begin(), blocks.end());
  landing.cached_blocks = static_cast<uint32_t>(cached_blocks);
  landing.extents.assign(blocks.size() * static_cast<size_t>(pool_.num_layers), Extent::kEmpty);
  landing.latest_frame = now;
}

LandingZone::Closing LandingZone::Close(ReservationId id) {
  absl::MutexLock lock(&mutex_);
  const auto place = landings_.find(id);
  TANDEM_CHECK(place != landings_.end() && !place->second.closed, "closed a landing that is not");
  if (place->second.num_writing > 0) {
    place->second.closed = true;
    return Closing::kDraining;
  }
  landings_.erase(place);
  return Closing::kDone;
}

void LandingZone::ShutDown() {
  absl::MutexLock lock(&mutex_);
  shut_down_ = true;
}

TimePoint LandingZone::LatestFrame(ReservationId id) const {
  absl::MutexLock lock(&mutex_);
  return landings_.at(id).latest_frame;
}

absl::StatusOr<std::span<std::byte>> LandingZone::Prepare(const FrameHeader& header) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Landing* const landing, Find(header));
  ASSIGN_OR_RETURN(const size_t index, ExtentIndex(header, *landing));
  Extent& extent = landing->extents[index];
  if (extent == Extent::kWriting) {
    return FailedPrecondition("layer {}, block {} of reservation {} is being written already",
                              header.layer, header.block, header.stream);
  }
  if (extent == Extent::kLanded) --landing->num_landed;
  extent = Extent::kWriting;
  ++landing->num_writing;
  landing->latest_frame = now;
  std::byte* const bytes =
      pool_.Extent(static_cast<int32_t>(header.layer), landing->blocks[header.block]);
  return std::span(bytes, static_cast<size_t>(pool_.ExtentBytes()));
}

void LandingZone::Landed(const FrameHeader& header, const absl::Status& status) {
  const ReservationId id(header.stream);
  const TimePoint now = clock_.Now();
  std::optional<Message> message;
  {
    absl::MutexLock lock(&mutex_);
    const auto place = landings_.find(id);
    TANDEM_CHECK(place != landings_.end(), "a frame landed that was not prepared");
    Landing& landing = place->second;
    const absl::StatusOr<size_t> index = ExtentIndex(header, landing);
    TANDEM_CHECK(index.ok() && landing.extents[*index] == Extent::kWriting,
                 "a frame landed that was not prepared");
    landing.extents[*index] = status.ok() ? Extent::kLanded : Extent::kEmpty;
    if (status.ok()) ++landing.num_landed;
    --landing.num_writing;
    landing.latest_frame = now;
    if (landing.closed && landing.num_writing == 0) {
      landings_.erase(place);
      message = KvDrainedMessage{id};
    } else if (!status.ok() && !landing.closed && landing.broken.ok()) {
      landing.broken = status;
      message = KvArrivedMessage{id, status, now};
    }
  }
  if (message) inbox_.PushAlways(*std::move(message));
}

CommitAnswer LandingZone::Commit(const FrameHeader& header) {
  const TimePoint now = clock_.Now();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<Landing*> found = Find(header);
    if (!found.ok()) return {.status = found.status()};
    Landing& landing = **found;
    status = CheckComplete(header, landing);
    landing.committed = status.ok();
    landing.broken = status;
    landing.latest_frame = now;
  }
  inbox_.PushAlways(KvArrivedMessage{ReservationId(header.stream), status, now});
  return {.status = status};
}

absl::Status LandingZone::Renewed(uint64_t stream, uint64_t epoch) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Landing* const landing, Find({.stream = stream, .epoch = epoch}));
  landing->latest_frame = now;
  return absl::OkStatus();
}

absl::StatusOr<LandingZone::Landing*> LandingZone::Find(const FrameHeader& header) {
  if (shut_down_) return Unavailable("this worker has shut down: retry elsewhere");
  if (header.epoch != epoch_) {
    return FailedPrecondition("a frame for epoch {}, this worker's is {}: it was restarted",
                              header.epoch, epoch_);
  }
  const auto place = landings_.find(ReservationId(header.stream));
  if (place == landings_.end() || place->second.closed) {
    return NotFound("reservation {} does not exist: it lapsed or was released", header.stream);
  }
  Landing& landing = place->second;
  RETURN_IF_ERROR(landing.broken);
  if (landing.committed) {
    return FailedPrecondition("reservation {} is complete: it takes no more frames", header.stream);
  }
  return &landing;
}

absl::StatusOr<size_t> LandingZone::ExtentIndex(const FrameHeader& header,
                                                const Landing& landing) const {
  const auto layers = static_cast<uint32_t>(pool_.num_layers);
  if (header.layer >= layers || header.block >= landing.blocks.size()) {
    return FailedPrecondition("layer {}, block {}: reservation {} has {} layers of {} blocks",
                              header.layer, header.block, header.stream, layers,
                              landing.blocks.size());
  }
  if (header.block < landing.cached_blocks) {
    return FailedPrecondition("block {} of reservation {}: its first {} are cached here",
                              header.block, header.stream, landing.cached_blocks);
  }
  if (header.payload_bytes != static_cast<uint64_t>(pool_.ExtentBytes())) {
    return FailedPrecondition("a payload of {} bytes, an extent has {}: the KV layouts differ",
                              header.payload_bytes, pool_.ExtentBytes());
  }
  return size_t{header.layer} * landing.blocks.size() + header.block;
}

absl::Status LandingZone::CheckComplete(const FrameHeader& header, const Landing& landing) const {
  const auto sent = static_cast<int64_t>(landing.blocks.size() - landing.cached_blocks);
  const int64_t expected = sent * pool_.num_layers;
  if (landing.num_landed == expected && header.frames == static_cast<uint64_t>(expected)) {
    return absl::OkStatus();
  }
  return DataLoss("reservation {} was committed with {} frames sent and {} of {} extents in place",
                  header.stream, header.frames, landing.num_landed, expected);
}

}  // namespace tandem
