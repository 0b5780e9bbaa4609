#include "transfer/framed/side_channel_payloads.h"

#include "base/check.h"
#include "base/status.h"
#include "transfer/framed/extent_stream.h"

namespace tandem {
namespace {

class SideChannelOutbound final : public OutboundPayloads {
 public:
  explicit SideChannelOutbound(ByteChannel& channel) : channel_(channel) {}

  // All payloads of a batch are offered at once; the next batch begins when this batch is out.
  absl::Status Fill(PeerStreams& streams, FrameBatch& batch, TimePoint now) override {
    lacks_room_ = false;
    if (!batch.empty()) return absl::OkStatus();
    const SideChannel::Room room = side_channel().room(streams.queue().in_flight());
    size_t bytes = 0;
    offered_.clear();
    while (batch.size() < FrameBatch::kMaxParts - 1) {
      if (streams.queue().NextIsData()) {
        lacks_room_ = room.payloads == 0 && !room.peer_holds_it;
        if (offered_.size() >= room.payloads || bytes >= room.enough_bytes) break;
        if (bytes + streams.queue().next_payload_bytes() > room.bytes) break;
      }
      std::optional<NextFrame> frame = streams.Next(now);
      if (!frame) break;
      if (frame->header.type == FrameType::kData) {
        frame->header.type = FrameType::kReference;
        offered_.push_back({.bytes = frame->payload});
        bytes += frame->payload.size();
      }
      batch.Add(frame->header);
    }
    if (!offered_.empty()) RETURN_IF_ERROR(Offer(batch));
    batch.Encode(0);
    return absl::OkStatus();
  }
  bool lacks_room() const override { return lacks_room_; }
  bool is_sending() const override {
    return channel_.side_channel() != nullptr && side_channel().sending();
  }

  // Payloads that were copied must all be named, or their room would never be free again. So they
  // are still sent, as if their stream had been dropped a moment later.
  uint64_t Drop(StreamKey key, FrameBatch& batch) override {
    if (channel_.side_channel() != nullptr && side_channel().keeps_copies()) return 0;
    return OutboundPayloads::Drop(key, batch);
  }

 private:
  SideChannel& side_channel() const { return *channel_.side_channel(); }

  absl::Status Offer(FrameBatch& batch) {
    ASSIGN_OR_RETURN(const uint32_t announced, side_channel().Offer(offered_));
    auto offered = offered_.begin();
    for (size_t i = 0; i < batch.size(); ++i) {
      FrameHeader& fields = batch.at(i).fields;
      if (!BringsPayload(fields)) continue;
      fields.payload_hash = offered->hash;
      fields.payload_handle = offered->handle;
      ++offered;
    }
    if (announced > 0) batch.Announce(announced);
    return absl::OkStatus();
  }

  ByteChannel& channel_;
  std::vector<OfferedPayload> offered_;  // the payloads of the batch that is being filled
  bool lacks_room_ = false;
};

// Payloads that a side channel has found and that the device is still to copy to their places.
// Flush copies all queued payloads and waits for that. It tells the receiver that a payload has
// landed if the hash of what was written is that of its frame. Thread: the loop's.
class PulledLandings {
 public:
  // `device` and `receiver` outlive this object.
  PulledLandings(Device& device, FrameReceiver& receiver, ExtentStream stream)
      : device_(device.name()),
        enough_bytes_(device.is_host() ? kEnoughHostBytes : kEnoughBytes),
        receiver_(receiver),
        stream_(std::move(stream)) {}

  bool empty() const { return headers_.empty(); }
  bool full() const {
    return headers_.size() == ExtentStream::kMaxExtents || bytes_ >= enough_bytes_;
  }
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

  // Queues the copy of a payload. Must not be called while full. `source` stays as it is until
  // Flush; `place` is as long.
  void Queue(const FrameHeader& header, std::span<const std::byte> source,
             std::span<std::byte> place) {
    TANDEM_CHECK(!full(), "a landing that there is no room for");
    TANDEM_CHECK(place.size() == header.payload_bytes, "a landing place of another size");
    headers_.push_back(header);
    copies_.push_back({.dst = place, .src = source});
    bytes_ += place.size();
  }
  // Copies all queued payloads, tells the receiver of them and returns how many were damaged.
  // UNAVAILABLE when the device failed: then none of them has landed.
  absl::StatusOr<size_t> Flush();

 private:
  // The bytes that are enough for a Flush; the last payload may exceed it. On a device each Flush
  // waits for the device, so it takes many payloads. On the host many at a time gain nothing, and
  // the sender gets room again only for what has landed.
  static constexpr size_t kEnoughBytes = size_t{16} << 20;
  static constexpr size_t kEnoughHostBytes = size_t{1} << 20;

  const std::string device_;  // the device's name
  const size_t enough_bytes_;
  FrameReceiver& receiver_;
  ExtentStream stream_;
  std::vector<FrameHeader> headers_;
  std::vector<ExtentCopy> copies_;  // one for each header
  size_t bytes_ = 0;
};

absl::StatusOr<size_t> PulledLandings::Flush() {
  if (empty()) return 0;
  const absl::StatusOr<std::span<const uint64_t>> hashes = stream_.CopyAll(copies_);
  const absl::Status failure =
      hashes.ok() ? absl::OkStatus()
                  : Unavailable("{} failed: {}", device_, std::string(hashes.status().message()));
  size_t damaged = 0;
  for (size_t i = 0; i < headers_.size(); ++i) {
    const absl::Status status =
        failure.ok() ? CheckPayloadHash(headers_[i], (*hashes)[i]) : failure;
    if (absl::IsDataLoss(status)) ++damaged;
    receiver_.Landed(headers_[i], status);
  }
  headers_.clear();
  copies_.clear();
  bytes_ = 0;
  RETURN_IF_ERROR(failure);
  return damaged;
}

// The receiving half for one connection. Payloads are copied to their places many at a time, from
// where the peer put them.
class SideChannelInbound final : public InboundPayloads {
 public:
  SideChannelInbound(ByteChannel& channel, PulledLandings& landings)
      : channel_(channel), landings_(landings) {}

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader&, LandingHost&) override {
    return Internal("a data frame where payloads have a side channel");
  }
  bool Landed(const FrameHeader&, const absl::Status&) override { return true; }
  bool carries_data() const override { return false; }

  absl::Status OnReference(const FrameHeader& header, LandingHost& host) override {
    const absl::StatusOr<std::span<const std::byte>> source =
        channel_.side_channel()->Find(header.payload_handle, header.payload_bytes);
    if (!source.ok()) return Judge(source.status(), host);
    if (landings_.full()) RETURN_IF_ERROR(host.FlushAndGrant());
    host.Received(header.payload_bytes);
    // If there is no place, the stream is refused, or the extent is missing at the commit and is
    // sent again.
    const absl::StatusOr<std::span<std::byte>> place = host.AskForPlace(header);
    if (place.ok()) landings_.Queue(header, *source, *place);
    return absl::OkStatus();
  }
  absl::Status OnAnnouncement(const FrameHeader& header, LandingHost& host) override {
    return Judge(channel_.side_channel()->Expect(header.payload_bytes), host);
  }
  bool is_arriving() override {
    return channel_.side_channel() != nullptr && channel_.side_channel()->arriving();
  }

  bool has_queued() const override { return !landings_.empty(); }
  absl::StatusOr<size_t> Flush() override { return landings_.Flush(); }

 private:
  // Only INVALID_ARGUMENT is the peer's fault: it named something that does not exist. Any other
  // error means that this side failed.
  static absl::Status Judge(const absl::Status& status, LandingHost& host) {
    return status.ok() || absl::IsInvalidArgument(status) ? status : host.Fail(status);
  }

  ByteChannel& channel_;
  PulledLandings& landings_;
};

class SideChannelPayloads final : public PayloadPath {
 public:
  explicit SideChannelPayloads(PulledLandings landings) : landings_(std::move(landings)) {}

  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t) override {
    return std::make_unique<SideChannelOutbound>(channel);
  }
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel& channel) override {
    return std::make_unique<SideChannelInbound>(channel, landings_);
  }
  size_t buffer_bytes() const override { return landings_.buffer_bytes(); }

 private:
  PulledLandings landings_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PayloadPath>> NewSideChannelPayloads(Device& device,
                                                                    FrameReceiver& receiver) {
  ASSIGN_OR_RETURN(ExtentStream stream, ExtentStream::Create(device));
  return std::make_unique<SideChannelPayloads>(PulledLandings(device, receiver, std::move(stream)));
}

std::unique_ptr<OutboundPayloads> NewSideChannelOutbound(ByteChannel& channel) {
  return std::make_unique<SideChannelOutbound>(channel);
}

}  // namespace tandem
