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
#include "transfer/link_stats.h"
#include "transfer/wire/frame.h"

namespace tandem {

// An extent to send. Its bytes stay where they are and remain the caller's.
struct PostedExtent {
  uint32_t layer = 0;
  uint32_t block = 0;
  std::span<const std::byte> payload;
};

struct MissingExtent {
  uint32_t layer = 0;
  uint32_t block = 0;
  friend bool operator==(const MissingExtent&, const MissingExtent&) = default;
};

// What a receiver answers to a commit. OK without missing extents acknowledges the stream. OK with
// missing extents asks for them again; another commit will follow them. An error rejects the stream.
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
  // OK says that the payload is in place and its hash is right. After an error (DATA_LOSS for a
  // wrong hash, UNAVAILABLE when the connection ended half-way) the place holds nothing of use, and
  // the stream goes on.
  virtual void Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // The sender says that it has sent everything.
  virtual CommitAnswer Commit(const FrameHeader& header) = 0;
  // The sender of the stream is alive. An error refuses the stream, as in Prepare.
  virtual absl::Status Renewed(uint64_t stream, uint64_t epoch) = 0;
};

// Reports how a stream that this side sends ended: OK once the receiver acknowledged its commit, the
// receiver's code when it rejected the stream, UNAVAILABLE when the connection was lost or could
// not be made. Called once per stream, on the transport's thread; must not block.
using StreamEnded =
    std::function<void(uint64_t stream, uint64_t epoch, const absl::Status& status)>;

// A stream that this side sends. Once it has ended, every call does nothing and succeeds, also after
// the transport is gone.
// Thread-safe.
class SendStream {
 public:
  virtual ~SendStream() = default;

  // Queues a data frame for each of `extents` in their order, or none of them if it fails. The cost
  // is one lock and one wake-up however many they are, so post together what is ready together.
  // Payloads are not copied: they must stay valid until the stream has ended or Abort returned.
  // RESOURCE_EXHAUSTED when the stream would have too many frames; INVALID_ARGUMENT when a payload
  // is empty, larger than kMaxPayloadBytes or not of the memory that the transport can send;
  // INTERNAL after Finish.
  virtual absl::Status Post(std::span<const PostedExtent> extents) = 0;
  // Queues the commit: no more data frames follow. INTERNAL the second time.
  virtual absl::Status Finish() = 0;
  // Drops what is queued. Once it returns, this side reads no payload of the stream any more. A peer
  // that reads payloads where they lie (ipc) may still do so, but what changed fails the hash.
  // Unless the stream has ended already, `ended` is called before or soon after: with CANCELLED, or
  // with UNAVAILABLE where the peer has been silent for so long that this may be why the caller
  // gave up. May wait for the transport's thread, never for a peer.
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
  // Whether trying `peer` makes sense from here. INVALID_ARGUMENT for a malformed address,
  // UNAVAILABLE with the reason otherwise. Does no I/O.
  virtual absl::Status MayReach(std::string_view peer) const = 0;

  // Opens a stream toward `peer`. Connections are made when needed and shared by the peer's streams.
  // While the stream is open, the receiver hears every `renew_every` that its sender lives (zero:
  // never). The first renewal may take half a second where nothing is posted and none is due.
  // `ended` is called exactly once, at the latest by the transport's destructor and possibly before
  // this returns, unless an error is returned: UNAVAILABLE after shutdown, INTERNAL when the stream
  // is open already, or an error of MayReach.
  virtual absl::StatusOr<StreamHandle> OpenStream(std::string_view peer, uint64_t stream,
                                                  uint64_t epoch, Duration renew_every,
                                                  StreamEnded ended) = 0;

  // One entry per peer that was ever connected to, for the latest 256 peers.
  virtual std::vector<LinkStats> links() const = 0;
  virtual RefusedFrames refused() const = 0;
  // Memory for what is under way: set aside at the start, and with TLS what the present connections
  // may take besides.
  virtual size_t buffer_bytes() const = 0;
  // Bytes sent and received since the start: frames and their payloads, however these travel.
  virtual uint64_t bytes_sent() const = 0;
  virtual uint64_t bytes_received() const = 0;
};

}  // namespace tandem
