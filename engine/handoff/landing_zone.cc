#include "engine/handoff/landing_zone.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/handoff/rounding.h"
#include "kvstore/codec/packed_extent.h"

namespace tandem {
namespace {

constexpr size_t kMaxCompleted = 1024;

// An error that drops only the present frame; the stream continues.
template <typename... Args>
absl::Status Aborted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kAborted, format, std::forward<Args>(args)...);
}
template <typename... Args>
absl::Status AlreadyExists(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kAlreadyExists, format, std::forward<Args>(args)...);
}

// An encoded payload in a slot, and the memory that its extent is decoded into: in the pool, or the
// slot itself.
struct Encoded {
  FrameDecoder decoder;
  KvLayout layout;
  ExtentShape shape;
  std::byte* slot = nullptr;
  std::byte* extent = nullptr;
};

// Decodes a payload into its extent. A full block is decoded in place, unless the payload lies
// there; otherwise the tokens are decoded to a buffer and then unpacked.
absl::Status DecodeInto(const FrameHeader& header, const Encoded& encoded) {
  thread_local std::vector<std::byte> tokens;
  const auto layer = static_cast<int32_t>(header.layer);
  const std::span<const std::byte> frame(encoded.slot, header.payload_bytes);
  const std::span extent(encoded.extent, static_cast<size_t>(encoded.layout.ExtentBytes()));
  const bool is_whole = encoded.shape.tokens == encoded.layout.block_tokens;
  if (is_whole && encoded.slot != encoded.extent) {
    return encoded.decoder.Decode(encoded.shape, layer, frame, extent);
  }
  tokens.resize(encoded.shape.Bytes());
  RETURN_IF_ERROR(encoded.decoder.Decode(encoded.shape, layer, frame, tokens));
  UnpackTokens(encoded.shape, encoded.layout.block_tokens, tokens, extent);
  return absl::OkStatus();
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
      decoder_(RoundingSteps()),
      converter_(std::move(conversion.converter)),
      completed_(kMaxCompleted) {}

ReadableKv LandingZone::Open(ReservationId id, LandingPlan plan) {
  const TimePoint now = clock_.Now();
  const bool has_codec = options_.workers != nullptr && !IsQuantisedKv(plan.layout.dtype);
  const Accepts accepts = has_codec ? Accepts::kExtentsAndFrames : Accepts::kExtents;
  auto landing =
      std::make_unique<Landing>(std::move(plan), options_.layout, accepts, now + options_.lease);
  absl::MutexLock lock(&mutex_);
  landing->decoder = DecoderFor(landing->plan.quality);
  TANDEM_CHECK(id > latest_, "a reservation that was opened before");
  latest_ = id;
  landings_.emplace(id, std::move(landing));
  if (accepts == Accepts::kExtents) return {};
  ReadableKv reads = {.codecs = {CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice},
                      .tables = decoder_.table_ids()};
  if (landings_.at(id)->plan.quality != KvQuality::kExact) {
    reads.codecs.push_back(CodecId::kRounded);
  }
  return reads;
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
  if (place->second->committed) completed_.Add(id);
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
  return landings_.at(id)->LandedBytes();
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
  ASSIGN_OR_RETURN(const size_t index, landing->IndexOf(header));
  Landing::Extent& extent = landing->extents[index];
  if (extent == Landing::Extent::kWriting) {
    return Aborted("layer {}, block {} of reservation {} is being written already", header.layer,
                   header.block, header.stream);
  }
  landing->lease_end = now + options_.lease;
  ASSIGN_OR_RETURN(std::byte* const bytes, PlaceFor(header, *landing, index));
  if (extent == Landing::Extent::kLanded) --landing->num_landed;
  extent = Landing::Extent::kWriting;
  ++landing->num_writing;
  return std::span(bytes, header.payload_bytes);
}

absl::StatusOr<std::byte*> LandingZone::PlaceFor(const FrameHeader& header, Landing& landing,
                                                 size_t index) {
  if (landing.direct && header.kind == PayloadKind::kExtent) {
    return pool_.Extent(static_cast<int32_t>(header.layer), landing.plan.blocks[header.block]);
  }
  if (header.payload_bytes > static_cast<uint64_t>(slots_.slot_bytes())) {
    return MakeStatus(absl::StatusCode::kPermissionDenied,
                      "a payload of {} bytes: the slots have {}", header.payload_bytes,
                      slots_.slot_bytes());
  }
  const std::optional<int32_t> slot = slots_.Take();
  // A frame that is dropped is requested again at the commit, when other frames have left their
  // slots.
  if (!slot)
    return Aborted("all slots for KV that is encoded or of another layout are being written");
  landing.slots.emplace(index, *slot);
  return slots_.At(*slot);
}

Landing& LandingZone::Writing(const FrameHeader& header) {
  const auto place = landings_.find(ReservationId(header.stream));
  TANDEM_CHECK(place != landings_.end(), "a frame landed that was not prepared");
  const absl::StatusOr<size_t> index = place->second->IndexOf(header);
  TANDEM_CHECK(index.ok() && place->second->extents[*index] == Landing::Extent::kWriting,
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
    absl::Status taken = status;
    if (status.ok() && !landing.closed) {
      if (header.kind == PayloadKind::kEncoded) {
        ++landing.num_decoding;
        ++num_decoding_;
        return options_.workers->Queue([this, header] { Decode(header); });
      }
      if (header.kind == PayloadKind::kTables) {
        taken = TakeTables(header, landing);
      } else if (!landing.direct) {
        ++landing.num_verified;
        verified_.push_back(header);
        return;
      }
    }
    drained = Settle(header, taken);
  }
  if (drained) inbox_.PushAlways(KvDrainedMessage{ReservationId(header.stream)});
}

absl::Status LandingZone::TakeTables(const FrameHeader& header, Landing& landing) {
  const std::span bytes(slots_.At(landing.slots.at(*landing.IndexOf(header))),
                        header.payload_bytes);
  absl::StatusOr<CodecTables> parsed =
      CodecTables::Parse(bytes, landing.ShapeOf(0), landing.plan.layout.num_layers);
  if (!parsed.ok()) {
    LogWarn("reservation={} brought tables that are none: {}", header.stream,
            parsed.status().ToString());
    return parsed.status();
  }
  decoder_.AddTables(std::make_shared<const CodecTables>(*std::move(parsed)));
  landing.decoder = DecoderFor(landing.plan.quality);
  return absl::OkStatus();
}

FrameDecoder LandingZone::DecoderFor(KvQuality quality) const {
  FrameDecoder decoder = decoder_;
  if (quality != KvQuality::kExact) decoder.ReadRounded();
  return decoder;
}

// Decodes without the lock: while an extent is being written, no other thread touches its slot, its
// bytes or the plan of its landing.
void LandingZone::Decode(const FrameHeader& header) {
  Encoded encoded;
  {
    absl::MutexLock lock(&mutex_);
    Landing& landing = Writing(header);
    encoded = {.decoder = landing.decoder,
               .layout = landing.plan.layout,
               .shape = landing.ShapeOf(header.block),
               .slot = slots_.At(landing.slots.at(*landing.IndexOf(header)))};
    encoded.extent = landing.direct ? pool_.Extent(static_cast<int32_t>(header.layer),
                                                   landing.plan.blocks[header.block])
                                    : encoded.slot;
  }
  const absl::Status status = DecodeInto(header, encoded);
  if (!status.ok()) {
    LogWarn("reservation={} layer={} block={} could not be decoded: {}", header.stream,
            header.layer, header.block, status.ToString());
  }
  bool drained = false;
  {
    absl::MutexLock lock(&mutex_);
    Landing& landing = Writing(header);
    --num_decoding_;
    --landing.num_decoding;
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
  const size_t index = *landing.IndexOf(header);
  landing.extents[index] = status.ok() ? Landing::Extent::kLanded : Landing::Extent::kEmpty;
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

// Waits until a slot is free or nothing is being decoded, and then converts the verified payloads
// if all slots are still taken. Decoding and converting free slots.
void LandingZone::MakeRoom() {
  {
    absl::MutexLock lock(&mutex_);
    const auto has_room = [this] {
      mutex_.AssertReaderHeld();
      return !slots_.all_taken() || num_decoding_ == 0;
    };
    mutex_.Await(absl::Condition(&has_room));
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
    const auto nobody_converts = [this] {
      mutex_.AssertReaderHeld();
      return !converting_;
    };
    mutex_.Await(absl::Condition(&nobody_converts));
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
    const std::byte* slot = slots_.At(landing.slots.at(*landing.IndexOf(header)));
    converter_->Add(plan.layout,
                    {.bytes = std::span(slot, static_cast<size_t>(plan.layout.ExtentBytes())),
                     .layer = static_cast<int32_t>(header.layer),
                     .block = static_cast<int32_t>(header.block)},
                    {.begin = plan.cached_tokens, .end = plan.prompt_tokens}, plan.blocks);
    --landing.num_verified;
  }
  return std::exchange(verified_, {});
}

void LandingZone::AwaitDecoded(ReservationId id) {
  absl::MutexLock lock(&mutex_);
  const auto decoded = [this, id] {
    mutex_.AssertReaderHeld();
    const auto place = landings_.find(id);
    return place == landings_.end() || place->second->num_decoding == 0;
  };
  mutex_.Await(absl::Condition(&decoded));
}

CommitAnswer LandingZone::Commit(const FrameHeader& header) {
  AwaitDecoded(ReservationId(header.stream));
  ConvertVerified();
  const TimePoint now = clock_.Now();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<Landing*> found = Find(header.stream, header.epoch, now);
    // The reservation is complete already, so the first acknowledgement was lost: acknowledges
    // again.
    if (absl::IsAlreadyExists(found.status())) return {};
    if (!found.ok()) return {.status = found.status(), .missing = {}};
    Landing& landing = **found;
    landing.lease_end = now + options_.lease;
    const absl::StatusOr<std::vector<MissingExtent>> missing = landing.Missing(header.frames);
    if (missing.ok() && !missing->empty()) {
      return {.status = absl::OkStatus(), .missing = *missing};
    }
    status = Annotate(missing.status(), fmt::format("reservation {}", header.stream));
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
  // A complete reservation needs no renewal by its sender: it waits for its request.
  if (absl::IsAlreadyExists(found.status())) return absl::OkStatus();
  RETURN_IF_ERROR(found.status());
  (*found)->lease_end = now + options_.lease;
  return absl::OkStatus();
}

absl::StatusOr<Landing*> LandingZone::Find(uint64_t stream, uint64_t epoch, TimePoint now) {
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
  if (completed_.Has(id) || (known && place->second->committed)) {
    return AlreadyExists("reservation {} is complete: it takes no more frames", stream);
  }
  if (!known) return NoSuchReservation(stream);
  RETURN_IF_ERROR(place->second->broken);
  // The engine thread will notice the expired lease as soon as its step has ended.
  if (place->second->lease_end <= now) return NoSuchReservation(stream);
  return place->second.get();
}

}  // namespace tandem
