#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "router/request/answer_buffers.h"
#include "server/http/http_exchange.h"

namespace tandem {

enum class HttpMatch : uint8_t { kExact, kPrefix };

// Requests whose method and path fit go to the handler: an exact path first, then the longest prefix.
// A route for GET also serves HEAD. A path that only other methods have gets 405, others 404. OPTIONS is
// answered with the methods of the path.
struct HttpRoute {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", or as a prefix "/v1/models/"
  HttpHandler handler;
  HttpMatch match = HttpMatch::kExact;
};

// PEM files.
struct HttpTlsFiles {
  std::string cert;  // the server's and those that signed it, in this order; empty: no TLS
  std::string key;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: a free one
  HttpTlsFiles tls;
  int io_threads = 1;
  // When more connect, the connection that has waited for a request longest is closed; 503 when all are
  // being answered. The system's limit on descriptors may allow fewer.
  int max_connections = 4096;
  size_t max_header_bytes = 16 << 10;  // of request line and headers; more: 431
  size_t max_body_bytes = 16 << 20;    // more: 413
  Duration header_timeout = std::chrono::seconds(10);
  Duration body_timeout = std::chrono::seconds(60);
  // How long a connection stays open between two requests.
  Duration idle_timeout = std::chrono::seconds(120);
  // Of one stream, beyond what the network takes.
  size_t max_queued_bytes = 256 << 10;
  // How long an aborted stream may stay open for its client to learn why.
  Duration slow_reader_grace = std::chrono::seconds(10);
  // How long a client may take to read an answer that has ended.
  Duration max_reading_time = std::chrono::minutes(10);
  // Counts what waits in all answers together, and outlives the server; may be null.
  AnswerBuffers* answers = nullptr;
};

// What became of connections so far.
struct HttpUse {
  int open = 0;
  int limit = 0;
  uint64_t requests = 0;
  uint64_t refused = 0;  // connections for which there was no room
  uint64_t evicted = 0;  // connections that were closed to make room for others
};

// Serves HTTP/1.1 and 1.0, with TLS where files are given. Requests of one connection are answered one
// after the other. What it refuses, and why, is in docs/http.md.
class HttpServer {
 public:
  // UNAVAILABLE names the address; INVALID_ARGUMENT the TLS file that cannot be used.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           std::vector<HttpRoute> routes);
  // As Drain with no time. Handlers and callbacks are not called any more afterwards; exchanges and
  // streams may outlive the server, without effect.
  ~HttpServer();

  uint16_t port() const;
  HttpUse use() const;  // thread-safe
  // Takes no new connections and requests, waits for answers in progress until `deadline`, then closes
  // all connections. Idempotent. Not on an I/O thread.
  void Drain(TimePoint deadline);

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
