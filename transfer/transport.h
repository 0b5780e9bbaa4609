#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transfer/frame.h"

namespace tandem {

// What a transport asks and tells of the streams that come in. Called on the transport's thread;
// must not block and must be thread-safe.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  // Where the payload of a data frame shall land, header.payload_bytes long; the bytes stay valid
  // until Landed is called for it. A status refuses the stream: the sender gets kReject with it and
  // the payload is read and dropped.
  virtual absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) = 0;
  // The payload is in place and its hash is right (OK), or it is not (DATA_LOSS, UNAVAILABLE when
  // the connection was lost half-way): then the sender gets kReject, and what it sent is dropped.
  virtual void Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // The sender says that all is sent. OK is answered by kAck, anything else by kReject.
  virtual absl::Status Commit(const FrameHeader& header) = 0;
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

  // Where peers connect to, "host:port".
  virtual std::string address() const = 0;

  // Opens a stream toward `peer`; the connection is made when needed and shared by its streams.
  // `ended` is called exactly once, at the latest by the transport's destructor, unless an error is
  // returned: UNAVAILABLE when it was shut down, INVALID_ARGUMENT for an address that cannot be,
  // INTERNAL when the stream is open already.
  virtual absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                                  StreamEnded ended) = 0;
  // Queues a data frame. The payload is not copied: it must stay valid until `ended` was called or
  // AbortStream returned. Frames of a stream that already ended are dropped.
  // RESOURCE_EXHAUSTED when the stream has too many frames queued; INVALID_ARGUMENT for a payload
  // that is empty or larger than kMaxPayloadBytes; INTERNAL after FinishStream.
  virtual absl::Status Post(uint64_t stream, uint64_t epoch, uint32_t layer, uint32_t block,
                            std::span<const std::byte> payload) = 0;
  // No more data frames: queues the commit. INTERNAL the second time.
  virtual absl::Status FinishStream(uint64_t stream, uint64_t epoch) = 0;
  // Drops what is queued; once it returns no payload of the stream is read any more. `ended` is
  // called with CANCELLED, before or soon after, unless it was already. May wait for the thread of
  // the transport to let go of a payload, never for a peer.
  virtual void AbortStream(uint64_t stream, uint64_t epoch) = 0;

  // Bytes sent and received since the start, headers included.
  virtual uint64_t bytes_sent() const = 0;
  virtual uint64_t bytes_received() const = 0;
};

}  // namespace tandem
