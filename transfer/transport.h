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
#include "transfer/frame.h"
#include "transfer/link_stats.h"

namespace tandem {

// An extent that is to be sent: where its bytes lie, which stay the caller's.
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

// What a receiver says to a commit. OK and nothing missing: the stream is acknowledged. OK and
// extents missing: they are asked for again, and another commit follows them. Else it is rejected.
struct CommitAnswer {
  absl::Status status;
  std::vector<MissingExtent> missing;
};

// What a transport asks and tells of the streams that come in. Called on the transport's thread;
// must be thread-safe and, but for a lot of payloads that is brought to its place, must not block.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  // Where the payload of a data frame shall land, header.payload_bytes long; the bytes stay valid
  // until Landed is called for it. A status refuses the stream: the sender gets kReject with it and
  // the payload is read and dropped. But ALREADY_EXISTS (the stream is complete) and ABORTED (the
  // place cannot be written now): this payload alone is dropped; and PERMISSION_DENIED (another
  // epoch, what was never given out, an extent that there is not): the connection is closed, too.
  virtual absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) = 0;
  // The payload is in place and its hash is right (OK), or it is not (DATA_LOSS, UNAVAILABLE when
  // the connection was lost half-way): then the place holds nothing, and the stream goes on.
  virtual void Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // The sender says that all is sent.
  virtual CommitAnswer Commit(const FrameHeader& header) = 0;
  // The sender of the stream lives. A status refuses the stream, as in Prepare.
  virtual absl::Status Renewed(uint64_t stream, uint64_t epoch) = 0;
};

// How a stream that this side sends ended: OK once the receiver acknowledged its commit, the
// receiver's status code when it rejected it, UNAVAILABLE when the connection was lost or could not
// be made. Called once per stream, on the transport's thread; must not block.
using StreamEnded =
    std::function<void(uint64_t stream, uint64_t epoch, const absl::Status& status)>;

// Bytes between workers: frames of extents, in order per stream. Knows nothing of KV.
// Calls never block: they queue, one thread of the transport does the I/O.
// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Where peers connect to.
  virtual std::string address() const = 0;
  // Whether trying `peer` makes sense from here. INVALID_ARGUMENT for an address that cannot be,
  // UNAVAILABLE with the reason. Does no I/O.
  virtual absl::Status MayReach(std::string_view peer) const = 0;

  // Opens a stream toward `peer`; connections are made when needed and shared by its streams. While
  // the stream is open the receiver is told every `renew_every` that its sender lives; zero: never.
  // Its first word may be half a second in coming where nothing is posted and no renewal is due.
  // `ended` is called exactly once, at the latest by the transport's destructor, unless an error is
  // returned: UNAVAILABLE when it was shut down, INTERNAL when the stream is open already, and what
  // MayReach says.
  virtual absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                                  Duration renew_every, StreamEnded ended) = 0;
  // Queues a data frame for each of `extents`, in their order; all of them, or none when it fails.
  // Costs a lock and a wake-up however many they are: post what is ready together. Payloads are not
  // copied: they must stay valid until `ended` was called or AbortStream returned. Frames of a
  // stream that already ended are dropped.
  // RESOURCE_EXHAUSTED when the stream would have too many frames queued; INVALID_ARGUMENT when a
  // payload is empty or larger than kMaxPayloadBytes; INTERNAL after FinishStream.
  virtual absl::Status Post(uint64_t stream, uint64_t epoch,
                            std::span<const PostedExtent> extents) = 0;
  // No more data frames: queues the commit. INTERNAL the second time.
  virtual absl::Status FinishStream(uint64_t stream, uint64_t epoch) = 0;
  // Drops what is queued; once it returns this side reads no payload of the stream any more, and a
  // peer that reads them where they lie (ipc) takes nothing that changed: it fails the hash.
  // `ended` is called before or soon after, unless it was already: with CANCELLED, or UNAVAILABLE
  // where the peer has answered nothing for so long that this may be why. May wait for the
  // thread of the transport to let go of a payload, never for a peer.
  virtual void AbortStream(uint64_t stream, uint64_t epoch) = 0;

  // One per peer that was ever connected to, of the latest 256.
  virtual std::vector<LinkStats> links() const = 0;
  virtual RefusedFrames refused() const = 0;
  // Memory for what is under way: set aside at the start, and with TLS what the connections that
  // there are now may take besides.
  virtual size_t buffer_bytes() const = 0;
  // Bytes sent and received since the start: frames and their payloads, however these travel.
  virtual uint64_t bytes_sent() const = 0;
  virtual uint64_t bytes_received() const = 0;
};

}  // namespace tandem
