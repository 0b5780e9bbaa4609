#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "transfer/wire/frame.h"

namespace tandem {

// The statistics of the link from this worker to one peer over one transport. Rates are of payload
// bytes, with 1 GB = 1e9 bytes; 0 where nothing was measured yet.
struct LinkStats {
  std::string peer;       // the peer's address, without the name of the transport
  std::string transport;  // "tcp", "shm", "ipc", "nccl"

  // Measured by probe streams, over the same path as KV; 0 before the first probe.
  double probe_gigabytes_per_second = 0;  // the rate of the latest probe
  double best_gigabytes_per_second = 0;   // the rate of the best probe since the peer started
  Duration probe_setup{};                 // time to connect and to get an empty stream acknowledged
  Duration probe_operation{};             // the time that each further small frame takes

  // Tracked whenever something moves, probes included: the rate while the link was full, as an
  // exponentially weighted mean (LinkMeter). 0 until the link was full for long enough.
  double gigabytes_per_second = 0;
  double fastest_gigabytes_per_second = 0;  // the fastest part of the latest windows

  uint64_t payload_bytes = 0;  // acknowledged by the peer or still under way
  uint64_t streams = 0;        // streams that were opened
  uint64_t streams_failed = 0;
  uint64_t resent_frames = 0;  // frames that the peer asked for again
  uint64_t connects = 0;
  uint64_t bytes_in_flight = 0;  // sent, and not yet consumed by the peer
};

// Counts of what peers sent and this side refused.
struct RefusedFrames {
  uint64_t malformed = 0;  // not a frame, a wrong header hash, an impossible size or field
  uint64_t corrupted = 0;  // payloads with a wrong hash
  uint64_t stale = 0;      // late or repeated: for a reservation that has ended or is complete
  // Frames of another epoch, for an unknown reservation, or for an extent that a reservation does
  // not have; and peers that are not who they should be (ByteChannel) or never said hello.
  uint64_t unauthenticated = 0;
  // Connections that were closed because of a refused frame or peer, or because there were too
  // many.
  uint64_t closed = 0;
};

// The statistics of a transport over all of its links, since the start.
struct TransportStats {
  RefusedFrames refused;
  // Memory for payloads under way: what was set aside at the start and, with TLS, the most that the
  // present connections may take besides.
  size_t buffer_bytes = 0;
  // The bytes of all frames and of their payloads, whether a payload travels in the connection or
  // beside it. A fabric leaves out the bytes of probes.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

// An extent to send. Its bytes stay where they are and remain the caller's.
struct PostedExtent {
  uint32_t layer = 0;
  uint32_t block = 0;
  std::span<const std::byte> payload;
  PayloadKind kind = PayloadKind::kExtent;
};

struct MissingExtent {
  uint32_t layer = 0;
  uint32_t block = 0;
  friend bool operator==(const MissingExtent&, const MissingExtent&) = default;
};

// What a receiver answers to a commit. OK without missing extents acknowledges the stream. OK with
// missing extents asks for them again; another commit will follow them. An error rejects the
// stream.
struct CommitAnswer {
  absl::Status status;
  std::vector<MissingExtent> missing;
};

// The owner of the memory that incoming streams land in. The transport calls it on its own thread.
// Implementations must be thread-safe and must not block, except to bring a batch of payloads into
// place.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  // Returns the header.payload_bytes bytes where the payload of a data frame shall land. They stay
  // valid until Landed is called for that frame. An error refuses the whole stream: the sender gets
  // a kReject with its code, and the payload is read and dropped. Three codes mean something else.
  // ALREADY_EXISTS (the stream is complete) and ABORTED (the place cannot be written now) drop this
  // payload alone. PERMISSION_DENIED (another epoch, an unknown reservation, an extent that the
  // reservation does not have) refuses the stream and also closes the connection.
  virtual absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) = 0;
  // Reports a payload for which Prepare gave a place. OK says that it is in place and its hash is
  // right. After an error (DATA_LOSS for a wrong hash, UNAVAILABLE when the connection ended
  // half-way) the place holds nothing of use, and the stream goes on.
  virtual void Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // The sender of a stream says that it has sent all data frames of the stream.
  virtual CommitAnswer Commit(const FrameHeader& header) = 0;
  // The sender of `stream` has said that it is alive. An error refuses the stream, as in Prepare.
  virtual absl::Status Renewed(uint64_t stream, uint64_t epoch) = 0;
};

// The receiver of a worker that only sends.
class NoReceiver final : public FrameReceiver {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader&) override { return Refusal(); }
  void Landed(const FrameHeader&, const absl::Status&) override {}
  CommitAnswer Commit(const FrameHeader&) override { return {.status = Refusal()}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return Refusal(); }

 private:
  static absl::Status Refusal() {
    return absl::FailedPreconditionError("this worker receives no streams");
  }
};

// Returns `receiver`, or a receiver that refuses every stream if `receiver` is null.
inline FrameReceiver& OrNoReceiver(FrameReceiver* receiver) {
  static NoReceiver none;  // has no state
  return receiver != nullptr ? *receiver : none;
}

// Reports how a stream that this side sends ended: OK once the receiver acknowledged its commit,
// the receiver's code when it rejected the stream, UNAVAILABLE when the connection was lost or
// could not be made. Called once per stream, on the transport's thread; must not block.
using StreamEnded =
    std::function<void(uint64_t stream, uint64_t epoch, const absl::Status& status)>;

// What the sender of a stream should know of the link that the stream takes.
struct SendLink {
  // Whether payloads may lie anywhere in the host's memory. Otherwise they must lie in the
  // KV pool that was registered with the transport.
  bool takes_any_memory = false;
  double gigabytes_per_second = 0;  // LinkStats::gigabytes_per_second when the stream was opened
};

// A stream that this side sends. Once it has ended, every call does nothing and succeeds, also
// after the transport is gone. Thread-safe.
class SendStream {
 public:
  virtual ~SendStream() = default;

  // The link that the stream takes; it never changes.
  virtual SendLink link() const { return {}; }

  // Queues a data frame for each of `extents` in their order, or none of them if it fails. The cost
  // is one lock and one wake-up however many they are, so post together what is ready together.
  // Payloads are not copied: they must stay valid until the stream has ended or Abort returned.
  // RESOURCE_EXHAUSTED when the stream would have too many frames; INVALID_ARGUMENT when a payload
  // is empty, larger than kMaxPayloadBytes or not of the memory that the transport can send;
  // INTERNAL after Finish.
  virtual absl::Status Post(std::span<const PostedExtent> extents) = 0;
  // Queues the commit: no more data frames follow. INTERNAL when it is called a second time.
  virtual absl::Status Finish() = 0;
  // Gives the stream up and drops the frames that are queued. Once it returns, this side reads no
  // payload of the stream any more. A peer that reads payloads where they lie (ipc) may still do
  // so, but what changed fails the hash. Unless the stream has ended already, `ended` is called
  // before or soon after: with CANCELLED, or with UNAVAILABLE where the peer has been silent for
  // long. May wait for the transport's thread, never for a peer.
  virtual void Abort() = 0;
};

using StreamHandle = std::shared_ptr<SendStream>;

// Moves bytes between workers: frames of extents, in order per stream. Knows nothing of KV. Calls
// never block: they queue, and one thread of the transport does the I/O.
// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // The address that peers connect to.
  virtual std::string address() const = 0;
  // Whether this worker may be able to reach the address `peer`. INVALID_ARGUMENT for a malformed
  // address, UNAVAILABLE with the reason otherwise. Does no I/O.
  virtual absl::Status MayReach(std::string_view peer) const = 0;

  // Opens a stream toward `peer`. Connections are made when needed and shared by the peer's
  // streams. While the stream is open, a renewal every `renew_every` tells the receiver that the
  // sender is alive (zero: no renewals). The first renewal may be sent half a second late if
  // nothing is posted and `renew_every` is at least that long. `ended` is called exactly once, at
  // the latest by the transport's destructor and possibly before this returns, unless an error is
  // returned: UNAVAILABLE after shutdown, INTERNAL when the stream is open already, or an error of
  // MayReach.
  virtual absl::StatusOr<StreamHandle> OpenStream(std::string_view peer, uint64_t stream,
                                                  uint64_t epoch, Duration renew_every,
                                                  StreamEnded ended) = 0;

  // The statistics of the links: one entry per peer that was ever connected to, for the latest 256.
  virtual std::vector<LinkStats> links() const = 0;
  virtual TransportStats stats() const = 0;
};

}  // namespace tandem
