#include "transfer/framed/staged_payloads.h"

#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// The size of a batch of staged payloads. Each batch waits once for the device, so it is larger
// than on a path without that wait.
constexpr size_t kStagedBatchBytes = 1 << 20;

class StagedOutbound final : public OutboundPayloads {
 public:
  StagedOutbound(OutboundStaging& staging, uint64_t id) : staging_(staging), id_(id) {}
  ~StagedOutbound() override { staging_.Forget(id_); }

  absl::Status Fill(PeerStreams& streams, FrameBatch& batch, TimePoint now) override {
    lacks_room_ = false;
    const size_t first = batch.size();
    while (batch.bytes() < kStagedBatchBytes && batch.size() < kBatchFrames) {
      // The slot is taken first, because a frame counts as sent once the queue has given it out.
      MemorySlot slot;
      if (streams.queue().NextIsData()) {
        slot = staging_.Take(id_, batch.num_slots());
        lacks_room_ = !slot;
        if (lacks_room_) break;
      }
      std::optional<NextFrame> frame = streams.Next(now);
      if (!frame) break;
      batch.Add(frame->header, frame->payload, std::move(slot));
    }
    RETURN_IF_ERROR(CopyToSlots(batch, first));
    batch.Encode(first);
    return absl::OkStatus();
  }
  bool lacks_room() const override { return lacks_room_; }

 private:
  // Copies the payloads of the frames from `first` on into their slots. Once it returns, nothing of
  // the caller's memory is read any more.
  absl::Status CopyToSlots(FrameBatch& batch, size_t first) {
    absl::Status queued;
    bool has_copies = false;
    for (size_t i = first; i < batch.size(); ++i) {
      OutFrame& frame = batch.at(i);
      if (!frame.slot) continue;
      has_copies = true;
      const std::span<std::byte> staged = frame.slot.bytes().first(frame.payload.size());
      if (queued.ok()) queued = staging_.pool().Copy(staged, frame.payload);
      frame.payload = staged;
    }
    if (!has_copies) return absl::OkStatus();
    const absl::Status done = staging_.pool().Synchronize();
    RETURN_IF_ERROR(queued.ok() ? done : queued);
    for (size_t i = first; i < batch.size(); ++i) {
      OutFrame& frame = batch.at(i);
      if (frame.slot) frame.fields.payload_hash = Hash64(frame.payload);
    }
    return absl::OkStatus();
  }

  OutboundStaging& staging_;
  const uint64_t id_;
  bool lacks_room_ = false;
};

// Reads a payload into a slot, from which it is copied once it is whole.
class StagedInbound final : public InboundPayloads {
 public:
  explicit StagedInbound(StagedLandings& landings) : landings_(landings) {}

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header,
                                               LandingHost& host) override {
    const size_t most = landings_.pool().payload_bytes();
    if (header.payload_bytes > most) {
      const absl::Status status =
          InvalidArgument("stream {}: payload of {} bytes: this worker takes at most {}",
                          header.stream, header.payload_bytes, most);
      host.Refuse(header, status);
      return status;
    }
    absl::StatusOr<MemorySlot> slot = landings_.Take();
    if (!slot.ok()) return host.Fail(slot.status());
    // Without a slot the payload is dropped. Its extent is missing at the commit and is sent again,
    // as when the receiver answers ABORTED.
    if (!*slot) return ResourceExhausted("each of the slots has part of a payload");
    ASSIGN_OR_RETURN(place_, host.AskForPlace(header));
    slot_ = *std::move(slot);
    return slot_.bytes().first(header.payload_bytes);
  }

  bool Landed(const FrameHeader& header, const absl::Status& status) override {
    MemorySlot slot = std::move(slot_);
    slot_ = MemorySlot();
    if (!slot || !status.ok()) return true;
    landings_.Queue(header, std::move(slot), place_);
    return false;
  }

  bool has_queued() const override { return !landings_.empty(); }
  absl::StatusOr<size_t> Flush() override {
    RETURN_IF_ERROR(landings_.Flush());
    return 0;
  }

 private:
  StagedLandings& landings_;
  MemorySlot slot_;  // holds the payload that is arriving
  std::span<std::byte> place_;
};

class StagedPayloads final : public PayloadPath {
 public:
  StagedPayloads(std::unique_ptr<StagingPool> outbound, std::unique_ptr<StagedLandings> inbound)
      : outbound_(std::move(outbound)), inbound_(std::move(inbound)) {}

  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel&, uint64_t id) override {
    return std::make_unique<StagedOutbound>(outbound_, id);
  }
  // A worker that only sends has no slots to receive into. It needs none, because it refuses every
  // stream.
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel&) override {
    if (inbound_ == nullptr) return std::make_unique<DirectInbound>();
    return std::make_unique<StagedInbound>(*inbound_);
  }
  absl::Status CheckPayload(uint64_t stream, size_t bytes) const override {
    const size_t most = outbound_.pool().payload_bytes();
    if (bytes <= most) return absl::OkStatus();
    return InvalidArgument("stream {}: payload of {} bytes: this transport stages at most {}",
                           stream, bytes, most);
  }
  size_t buffer_bytes() const override {
    return outbound_.pool().slots().size_bytes() +
           (inbound_ != nullptr ? inbound_->pool().slots().size_bytes() : 0);
  }
  bool has_turn() const override { return outbound_.has_turn(); }
  std::optional<uint64_t> BeginTurn() override { return outbound_.BeginTurn(); }
  void EndTurn() override { outbound_.EndTurn(); }

 private:
  OutboundStaging outbound_;
  const std::unique_ptr<StagedLandings> inbound_;  // null on a worker that only sends
};

}  // namespace

absl::StatusOr<MemorySlot> StagedLandings::Take() {
  if (pool_->slots().num_free() == 0) RETURN_IF_ERROR(Flush());
  return pool_->slots().Take();
}

void StagedLandings::Queue(const FrameHeader& header, MemorySlot slot, std::span<std::byte> place) {
  TANDEM_CHECK(place.size() == header.payload_bytes, "a landing place of another size");
  if (copied_.ok()) copied_ = pool_->Copy(place, slot.bytes().first(header.payload_bytes));
  queued_.push_back({.header = header, .slot = std::move(slot)});
}

absl::Status StagedLandings::Flush() {
  if (queued_.empty()) return absl::OkStatus();
  const absl::Status done = pool_->Synchronize();
  const absl::Status queued = std::exchange(copied_, absl::OkStatus());
  const absl::Status& status = queued.ok() ? done : queued;
  for (const Queued& landing : queued_) receiver_.Landed(landing.header, status);
  queued_.clear();
  return status;
}

absl::StatusOr<std::unique_ptr<PayloadPath>> NewStagedPayloads(Device& device, size_t payload_bytes,
                                                               size_t total_bytes,
                                                               FrameReceiver* receiver) {
  ASSIGN_OR_RETURN(std::unique_ptr<StagingPool> outbound,
                   StagingPool::Create(device, payload_bytes, total_bytes));
  std::unique_ptr<StagedLandings> inbound;
  if (receiver != nullptr) {
    ASSIGN_OR_RETURN(std::unique_ptr<StagingPool> pool,
                     StagingPool::Create(device, payload_bytes, total_bytes));
    inbound = std::make_unique<StagedLandings>(std::move(pool), *receiver);
  }
  return std::make_unique<StagedPayloads>(std::move(outbound), std::move(inbound));
}

}  // namespace tandem
