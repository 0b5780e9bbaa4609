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

  // Measured by probe streams, through the way that KV takes; 0 before.
  double probe_gigabytes_per_second = 0;  // by the latest
  double best_gigabytes_per_second = 0;   // by the best since the peer started
  Duration probe_setup{};      // a connection made and a stream without frames acknowledged
  Duration probe_operation{};  // what each further small frame costs

  // Tracked whenever something moves, probes too: the rate while the link was full, as an
  // exponentially weighted mean (LinkMeter). 0 as long as it was not full for long enough.
  double gigabytes_per_second = 0;
  double fastest_gigabytes_per_second = 0;  // at times of that
  bool alarm = false;                       // even that is far below the best probe (LinkAlarm)
  uint64_t alarms = 0;                      // times that the alarm went on

  uint64_t payload_bytes = 0;  // acknowledged by the peer or still under way
  uint64_t streams = 0;        // opened
  uint64_t streams_failed = 0;
  uint64_t resent_frames = 0;  // that the peer asked for again
  uint64_t connects = 0;
  uint64_t zero_copy_writes = 0;    // that the system was handed without a copy
  uint64_t zero_copy_given_up = 0;  // connections that go on with copies
  std::string zero_copy_reason;     // of the latest
  uint64_t bytes_in_flight = 0;     // sent, and not yet credited back
};

// What came from peers that was refused, since the start.
struct RefusedFrames {
  uint64_t malformed = 0;  // no frame, a wrong header hash, a size or a field that cannot be
  uint64_t corrupted = 0;  // payloads whose hash was wrong
  uint64_t stale = 0;      // for a reservation that has ended, or complete ones: late or replayed
  // Of another epoch, for what was never given out, extents that a reservation does not have; and
  // peers that are not who they should be (ByteChannel), or never said who they are.
  uint64_t strangers = 0;
  // Connections that were closed because of these, or since all places were taken.
  uint64_t closed = 0;
};

}  // namespace tandem
