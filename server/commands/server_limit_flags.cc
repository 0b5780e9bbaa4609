#include "server/commands/server_limit_flags.h"

#include "CLI/CLI.hpp"

namespace tandem {
namespace {

struct LimitFlag {
  const char* name;
  int32_t ServerLimits::*field;
  int32_t least;
  int32_t most;
  const char* help;
};

constexpr int32_t kDay = 24 * 3600;
constexpr LimitFlag kLimitFlags[] = {
    {"--max-connections", &ServerLimits::max_connections, 1, 1 << 20,
     "open connections to the gRPC port, of which one in eight may be in its handshake; more are "
     "closed at once, as are those for which the system's limit on open files leaves no room"},
    {"--max-streams", &ServerLimits::max_streams, 1, 1 << 20,
     "calls in progress of one connection; more wait at their client"},
    {"--grpc-memory-mib", &ServerLimits::memory_mebibytes, 64, 1 << 20,
     "memory of gRPC for its connections; idle ones are closed, then calls refused, beyond it"},
    {"--max-metadata-bytes", &ServerLimits::max_metadata_bytes, 1024, 1 << 20,
     "headers of one call; calls with more are refused"},
    {"--handshake-seconds", &ServerLimits::handshake_seconds, 1, kDay,
     "how long a new connection may take to begin to speak HTTP/2"},
    {"--connection-idle-seconds", &ServerLimits::idle_seconds, 0, kDay,
     "a connection without calls is closed after so long; 0: never"},
    {"--connection-age-seconds", &ServerLimits::age_seconds, 0, 365 * kDay,
     "a client is told to connect anew after so long, so that a load balancer can move it; 0: "
     "never"},
    {"--connection-age-grace-seconds", &ServerLimits::age_grace_seconds, 1, kDay,
     "how long the calls of such a connection may still take"},
    {"--keepalive-seconds", &ServerLimits::keepalive_seconds, 1, kDay,
     "a silent client is pinged after so long"},
    {"--keepalive-timeout-seconds", &ServerLimits::keepalive_timeout_seconds, 1, kDay,
     "and disconnected when it does not answer for so long"},
    {"--min-ping-interval-seconds", &ServerLimits::min_ping_interval_seconds, 0, kDay,
     "a client that pings more often is disconnected"},
};

}  // namespace

void AddServerLimitFlags(CLI::App& app, ServerLimits& limits) {
  for (const LimitFlag& flag : kLimitFlags) {
    app.add_option(flag.name, limits.*flag.field, flag.help)
        ->check(CLI::Range(flag.least, flag.most))
        ->capture_default_str()
        ->group("Limits of the gRPC server");
  }
}

}  // namespace tandem
