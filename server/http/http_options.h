#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "router/request/answer_buffers.h"
#include "security/tls_refusals.h"
#include "server/http/http_message.h"

namespace tandem {

// The PEM files for HTTPS.
struct HttpTlsFiles {
  std::string cert;  // the server's certificate, then its issuers; empty: no TLS
  std::string key;
  // The authorities of clients: each client must show a certificate of theirs with the identity of
  // a client or an admin. Empty: clients need none.
  std::string client_ca;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: a free one
  HttpTlsFiles tls;
  TlsRefusals* tls_refusals = nullptr;  // counts clients that TLS refuses; outlives the server
  int io_threads = 1;
  // When more clients connect, the connection that has waited for a request longest is closed; a
  // new client gets 503 when all connections are being answered. The system's limit on descriptors
  // may allow fewer.
  int max_connections = 4096;
  size_t max_header_bytes = 16 << 10;  // of request line and headers; more: 431
  size_t max_body_bytes = 16 << 20;    // more: 413
  // All bodies together that are received or wait for their handlers; more: 503. At least
  // max_body_bytes count, so that one body has room.
  size_t max_total_body_bytes = 256 << 20;
  Duration header_timeout = std::chrono::seconds(10);
  Duration body_timeout = std::chrono::seconds(60);
  // How long a connection stays open between two requests.
  Duration idle_timeout = std::chrono::seconds(120);
  // How many bytes of one stream may be queued beyond those that the network has taken.
  size_t max_queued_bytes = 256 << 10;
  // How long an aborted stream may stay open for its client to learn why.
  Duration slow_reader_grace = std::chrono::seconds(10);
  // How long a client may take to read an answer that has ended.
  Duration max_reading_time = std::chrono::minutes(10);
  // Called with each request before its handler, on an I/O thread, which it must not block: if it
  // returns an answer, the request is refused. It may set the request's tenant. Empty: every
  // request is served.
  std::function<std::optional<HttpResponse>(HttpRequest&)> authorize;
  // Counts the bytes queued in all answers together, and outlives the server; may be null.
  AnswerBuffers* answers = nullptr;
};

}  // namespace tandem
