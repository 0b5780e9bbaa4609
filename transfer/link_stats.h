#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tandem {

// What is known of the way from this worker to one peer over one transport. Rates are of payload
// bytes, 1 GB = 1e9 bytes; 0 where nothing was measured yet.
struct LinkStats {
  std::string peer;       // the peer's address of this transport, without the scheme
  std::string transport;  // "tcp", "shm", "loopback"

  // Measured at join by probe streams, through the way that KV takes; 0 before.
  double probe_gigabytes_per_second = 0;
  Duration probe_setup{};      // a connection made and a stream without frames acknowledged
  Duration probe_operation{};  // what each further small frame costs

  // Tracked while KV moves: payload over the time in which something waited to be sent, as an
  // exponentially weighted mean over about the latest 64 MB.
  double gigabytes_per_second = 0;
  // Far below the probe (less than half of it, over enough bytes that it is no accident).
  bool alarm = false;

  uint64_t payload_bytes = 0;  // acknowledged by the peer or still under way
  uint64_t streams = 0;        // opened
  uint64_t streams_failed = 0;
  uint64_t resent_frames = 0;  // that the peer asked for again
  uint64_t connects = 0;
  uint64_t bytes_in_flight = 0;  // sent, and not yet credited back
};

// What came from peers that was refused, since the start.
struct RefusedFrames {
  uint64_t malformed = 0;  // no frame, a wrong header hash, a size or a field that cannot be
  uint64_t corrupted = 0;  // payloads whose hash was wrong
  uint64_t stale = 0;      // for a reservation that has ended, or complete ones: late or replayed
  // Of another epoch, for what was never given out, extents that a reservation does not have; and
  // peers that are not who they should be (ByteChannel), before they said anything.
  uint64_t strangers = 0;
  uint64_t closed = 0;  // connections that were closed because of these
};

}  // namespace tandem
