#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transfer/transport.h"

namespace tandem {

struct TcpOptions {
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;             // 0: the system chooses
  std::string advertised_host;          // what address() names; empty: listen_host
  int32_t max_queued_frames = 1 << 18;  // per stream
  int32_t max_connections = 256;        // accepted ones; further ones are closed at once
  std::chrono::milliseconds connect_timeout{5000};  // name lookup included
  // A connection on which a frame is under way and nothing moved for so long is closed.
  std::chrono::milliseconds stall_timeout{30000};
};

// Framed TCP: one connection per peer and direction, one epoll thread for all of them, writes
// gathered by writev straight from the pool, payloads read straight into the place that the
// receiver names. A connection that sends what is no frame is closed.
// `receiver` must outlive the transport; it may be null on a worker that only sends.
// A null receiver refuses every stream with FAILED_PRECONDITION.
// UNAVAILABLE with the address when it cannot listen there.
absl::StatusOr<std::unique_ptr<Transport>> OpenTcpTransport(const TcpOptions& options,
                                                            FrameReceiver* receiver);

}  // namespace tandem
