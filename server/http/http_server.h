#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/http/http_exchange.h"
#include "server/http/http_options.h"
#include "server/http/http_route.h"

namespace tandem {

// How a server's connections were used since it started.
struct HttpUse {
  int open = 0;
  int limit = 0;
  uint64_t requests = 0;
  uint64_t refused = 0;  // connections for which there was no room
  uint64_t evicted = 0;  // connections that were closed to make room for others
  // Requests that were refused before a handler saw them, by status (refusal_counts.h).
  std::vector<std::pair<int, uint64_t>> refusals;
};

// Serves HTTP/1.1 and 1.0, with TLS where files are given. Requests of one connection are answered
// one after the other. What it refuses, and why, is in docs/http.md.
class HttpServer {
 public:
  // Starts to listen. UNAVAILABLE names the address; INVALID_ARGUMENT names the TLS file that
  // cannot be used.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           std::vector<HttpRoute> routes);
  // Ends like Drain with a deadline that has passed. No handler or callback is called afterwards;
  // exchanges and streams may outlive the server, but then have no effect.
  ~HttpServer();

  uint16_t port() const;
  HttpUse use() const;  // thread-safe
  // Takes no new connections and requests, waits for answers in progress until `deadline`, then
  // closes all connections. Idempotent. Not on an I/O thread.
  void Drain(TimePoint deadline);

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
