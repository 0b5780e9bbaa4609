#pragma once

#include <cstdint>

namespace tandem {

// What callers may take of one gRPC server, at the router and at each worker. The flags that set
// them, with their meaning, are in server/commands/server_limit_flags.cc.
struct ServerLimits {
  int32_t max_connections = 4096;
  int32_t max_streams = 2048;
  int32_t memory_mebibytes = 1024;
  int32_t max_metadata_bytes = 8192;
  int32_t handshake_seconds = 10;
  int32_t idle_seconds = 3600;
  int32_t age_seconds = 0;
  int32_t age_grace_seconds = 600;
  int32_t keepalive_seconds = 20;
  int32_t keepalive_timeout_seconds = 10;
  int32_t min_ping_interval_seconds = 5;
};

}  // namespace tandem
