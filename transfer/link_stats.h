#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tandem {

// The statistics of the link from this worker to one peer over one transport. Rates are of payload
// bytes, with 1 GB = 1e9 bytes; 0 where nothing was measured yet.
struct LinkStats {
  std::string peer;       // the peer's address of this transport, without the scheme
  std::string transport;  // "tcp", "shm", "ipc", "nccl"

  // Measured by probe streams, over the same path as KV; 0 before the first probe.
  double probe_gigabytes_per_second = 0;  // of the latest probe
  double best_gigabytes_per_second = 0;   // of the best probe since the peer started
  Duration probe_setup{};      // to make a connection and acknowledge a stream without frames
  Duration probe_operation{};  // the cost of each further small frame

  // Tracked whenever something moves, probes included: the rate while the link was full, as an
  // exponentially weighted mean (LinkMeter). 0 until the link was full for long enough.
  double gigabytes_per_second = 0;
  double fastest_gigabytes_per_second = 0;  // of the fastest moments among these

  uint64_t payload_bytes = 0;  // acknowledged by the peer or still under way
  uint64_t streams = 0;        // that were opened
  uint64_t streams_failed = 0;
  uint64_t resent_frames = 0;  // that the peer asked for again
  uint64_t connects = 0;
  uint64_t bytes_in_flight = 0;  // sent, and not yet consumed by the peer
};

// What peers sent and this side refused, since the start.
struct RefusedFrames {
  uint64_t malformed = 0;  // not a frame, a wrong header hash, an impossible size or field
  uint64_t corrupted = 0;  // payloads with a wrong hash
  uint64_t stale = 0;      // late or repeated: for a reservation that has ended or is complete
  // Frames of another epoch, for an unknown reservation, or for an extent that a reservation does
  // not have; and peers that are not who they should be (ByteChannel) or never said hello.
  uint64_t unauthenticated = 0;
  // Connections that were closed for one of these reasons, or because there were too many.
  uint64_t closed = 0;
};

}  // namespace tandem
