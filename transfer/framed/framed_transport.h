#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/medium.h"
#include "transfer/transport.h"

namespace tandem {

// The credit window that suits media with lanes where what is under way costs nothing: it lies
// where it is (ipc), or goes by itself (nccl).
inline constexpr uint64_t kLaneWindowBytes = uint64_t{64} << 20;

struct FramedOptions {
  // Per stream, all of which stay posted until it ends, since they may be asked for again: 24 bytes
  // each besides the payload. At least what the largest stream has; a probe has no more than this.
  int64_t max_queued_frames = 1 << 18;
  int32_t max_connections = 256;  // accepted ones; further ones are closed at once
  // Toward each peer, at most kMaxGroupConnections. One thread serves them all, so more than one
  // pay only where the network holds a single connection to less than its own rate.
  int32_t connections = 1;
  // Bytes of payload that each peer may have under way toward here.
  uint64_t credit_window_bytes = 16 << 20;
  // Bytes of payload that go to each peer; 0: as fast as it goes.
  uint64_t max_bytes_per_second = 0;
  // All that comes before the first byte included: name lookup, handshakes.
  std::chrono::milliseconds connect_timeout{5000};
  // A connection on which something is under way and nothing moved for so long is closed.
  std::chrono::milliseconds stall_timeout{30000};
  // So are those to a peer that owes an answer and gives none for so long, whatever they still
  // take. A receiver says within a fifth of it that something is coming.
  std::chrono::milliseconds answer_timeout{5000};
  // Rises with every turn of the transport's thread, at least once a second while the medium is in
  // health, for whoever watches over it; may be null, else it outlives the transport.
  std::atomic<uint64_t>* turns = nullptr;
  // Where payloads lie, those that are posted and the places that Prepare names; outlives the
  // transport. Null or a device that is the host: in the host's memory. With another one they pass
  // through page-locked memory, which is set aside when the transport is made. Over a medium with
  // lanes it copies payloads by itself: it must be given then, the medium's, and nothing is staged.
  Device* device = nullptr;
  // Then, the largest payload. Post refuses a larger one with INVALID_ARGUMENT; the stream of a
  // larger one that comes is refused with it, too.
  size_t staged_payload_bytes = 0;
  // Then, of page-locked memory in each direction: at least two such payloads.
  size_t staging_bytes = 32 << 20;
};

// Frames (docs/kv_wire_format.md) over any medium: one thread for all connections, writes gathered
// straight from the pool, payloads read straight into the place that the receiver names. A
// connection that sends what is no frame is closed.
// `receiver` must outlive the transport. Null on a worker that only sends: then every stream that
// comes is refused with FAILED_PRECONDITION.
// UNAVAILABLE when the process has no descriptor left; INVALID_ARGUMENT for sizes of the staging
// that cannot be, RESOURCE_EXHAUSTED when there is not so much page-locked memory.
absl::StatusOr<std::unique_ptr<Transport>> NewFramedTransport(const FramedOptions& options,
                                                              std::unique_ptr<Medium> medium,
                                                              FrameReceiver* receiver);

}  // namespace tandem
