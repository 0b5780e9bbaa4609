#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "kernels/device.h"

namespace tandem {

// The credit window for media with side channels where payload under way costs no memory: it stays
// where it lies (ipc) or goes straight to its place (nccl).
inline constexpr uint64_t kSideChannelWindowBytes = uint64_t{64} << 20;

// The default of FramedOptions::rate_burst. Long enough that a loop which wakes every millisecond
// keeps the rate, short enough that a measurement over a second sees the rate.
inline constexpr Duration kDefaultRateBurst = std::chrono::milliseconds(10);

struct FramedOptions {
  // The most data frames of one stream. All stay posted until the stream ends, because the peer may
  // ask for them again: 24 bytes each besides the payload. At least what the largest stream has; a
  // probe has no more than the default.
  int64_t max_queued_frames = 1 << 18;
  int32_t max_connections = 256;  // the most that peers may make; further ones are closed
  // Bytes of payload that each peer may have under way toward this side.
  uint64_t credit_window_bytes = 16 << 20;
  // The most bytes of payload per second that go to each peer; 0: no limit.
  uint64_t max_bytes_per_second = 0;
  // How much may be sent at once after a pause: what max_bytes_per_second gives in this time.
  Duration rate_burst = kDefaultRateBurst;
  // The time limit for everything before the first byte of a connection, name lookup and handshakes
  // included.
  std::chrono::milliseconds connect_timeout{5000};
  // A connection on which something is under way and nothing moves for this long is closed.
  std::chrono::milliseconds stall_timeout{30000};
  // A connection to a peer that owes an answer and gives none for this long is closed, however much
  // the peer still takes. While payload arrives, a receiver answers at least every fifth of this
  // time.
  std::chrono::milliseconds answer_timeout{5000};
  // A counter that rises with every turn of the transport's thread, at least once a second while
  // the medium is healthy, for a watchdog. May be null; else it outlives the transport.
  std::atomic<uint64_t>* turns = nullptr;
  // The device in whose memory payloads lie and land; outlives the transport. Null or a device that
  // is the host: the host's memory. Payloads of another device are staged in page-locked memory,
  // which is set aside when the transport is made. Over a medium with side channels nothing is
  // staged; then the device must be given, and it must be the medium's.
  Device* device = nullptr;
  // The largest payload where payloads are staged. Post refuses a larger one with INVALID_ARGUMENT,
  // and a stream that brings a larger one is refused.
  size_t staged_payload_bytes = 0;
  // The page-locked memory for each direction where payloads are staged: room for at least two of
  // staged_payload_bytes.
  size_t staging_bytes = 32 << 20;
};

}  // namespace tandem
