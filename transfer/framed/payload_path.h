#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "transfer/framed/frame_batch.h"
#include "transfer/framed/peer_streams.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// The sending half of a payload path, for one connection: brings payloads from where they lie into
// what the connection writes.
// Thread: the loop's.
class OutboundPayloads {
 public:
  virtual ~OutboundPayloads() = default;

  // Moves the frames that the peer's streams send next into `batch`, as many as are worth a write.
  // An error ends the connection.
  virtual absl::Status Fill(PeerStreams& streams, FrameBatch& batch, TimePoint now) = 0;
  // Whether the latest Fill left data behind for want of room on this side: no fault of the peer's.
  virtual bool lacks_room() const { return false; }
  // The stream was dropped: afterwards nothing in the batch reads its payloads. Returns how many
  // bytes of payload will not be sent for that reason.
  virtual uint64_t Drop(StreamKey key, FrameBatch& batch) { return batch.Drop(key); }
  // Whether a payload is on its way for which the path has a deadline of its own.
  virtual bool is_sending() const { return false; }
};

// What the receiving half of a payload path asks of its connection.
class LandingHost {
 public:
  // Where the payload goes, as FrameReceiver::Prepare. After an error the payload is dropped.
  virtual absl::StatusOr<std::span<std::byte>> AskForPlace(const FrameHeader& header) = 0;
  // Refuses the stream of the frame `header`, as an error of AskForPlace does.
  virtual void Refuse(const FrameHeader& header, const absl::Status& status) = 0;
  // Tells the receiver of all payloads that are queued and gives the sender credit for them.
  virtual absl::Status FlushAndGrant() = 0;
  // Counts the payload of a reference as received.
  virtual void Received(uint32_t payload_bytes) = 0;
  // This side failed; the connection ends, and that is not counted as the peer's fault. Returns
  // `status`.
  virtual absl::Status Fail(const absl::Status& status) = 0;

 protected:
  ~LandingHost() = default;
};

// The receiving half of a payload path, for one connection: brings payloads from the connection to
// the places that the receiver names.
// Thread: the loop's.
class InboundPayloads {
 public:
  virtual ~InboundPayloads() = default;

  // Where the connection shall read the payload of a data frame into. After an error the payload is
  // read and dropped.
  virtual absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header,
                                                       LandingHost& host) = 0;
  // The payload was read, or could not be. Returns whether the receiver shall get it now,
  // rather than at a later Flush.
  virtual bool Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // Whether data frames carry the payloads on this path; otherwise reference frames name them.
  virtual bool carries_data() const { return true; }
  // A reference names where the peer has put a payload; an announcement says that payloads are on
  // their way. INVALID_ARGUMENT where the path has no such frames.
  virtual absl::Status OnReference(const FrameHeader& header, LandingHost& host);
  virtual absl::Status OnAnnouncement(const FrameHeader& header, LandingHost& host);
  // Whether announced payloads have not come yet. While true, the connection reads nothing.
  virtual bool is_arriving() { return false; }
  // Whether payloads wait for a Flush, on any connection of the transport.
  virtual bool has_queued() const { return false; }
  // Brings what is queued into place and reports it to the receiver. Returns how many payloads were
  // damaged; an error says that none has landed.
  virtual absl::StatusOr<size_t> Flush() { return 0; }
};

// How the payloads of a transport get between their memory and its connections. There are three:
// direct (the channel reads and writes them where they lie), staged (through page-locked memory)
// and side channel (beside the bytes of the connection). Thread: the loop's, except for
// CheckPayload and buffer_bytes, which are thread-safe.
class PayloadPath {
 public:
  virtual ~PayloadPath() = default;

  // Make the two halves of the path for a connection that the loop knows as `id`. `channel`
  // outlives them.
  virtual std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t id) = 0;
  virtual std::unique_ptr<InboundPayloads> NewInbound(ByteChannel& channel) = 0;

  // INVALID_ARGUMENT for a payload of a size that the path cannot carry.
  virtual absl::Status CheckPayload(uint64_t /*stream*/, size_t /*bytes*/) const {
    return absl::OkStatus();
  }
  virtual size_t buffer_bytes() const { return 0; }

  // Turns for connections that wait for memory which all connections of the path share. The loop
  // advances the one that BeginTurn names, then calls EndTurn, until BeginTurn names none.
  virtual bool has_turn() const { return false; }
  virtual std::optional<uint64_t> BeginTurn() { return std::nullopt; }
  virtual void EndTurn() {}
};

// The number of frames in a batch for which one write and one pass of hashing pay. A payload is
// hashed when its frame joins the batch and sent soon after, while it is still in the cache.
inline constexpr size_t kBatchFrames = 64;

// Reads a payload straight into its place.
class DirectInbound final : public InboundPayloads {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header,
                                               LandingHost& host) override {
    return host.AskForPlace(header);
  }
  bool Landed(const FrameHeader&, const absl::Status&) override { return true; }
};

// The direct path: payloads lie in the host's memory, and channels read and write them there.
class DirectPayloads final : public PayloadPath {
 public:
  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t id) override;
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel&) override {
    return std::make_unique<DirectInbound>();
  }
};

}  // namespace tandem
