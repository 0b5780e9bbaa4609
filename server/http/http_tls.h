#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "security/peer_check.h"
#include "security/reloading_context.h"
#include "server/http/http_options.h"

struct ssl_st;  // OpenSSL's SSL

namespace tandem {

// TLS of an HTTP port, version 1.2 or later. Each new connection uses the certificate files in
// their present state. Thread-safe.
class HttpTls {
 public:
  // Null where no files are given. INVALID_ARGUMENT names the flag or the file.
  static absl::StatusOr<std::unique_ptr<HttpTls>> Open(const HttpServerOptions& options);

  // The OpenSSL context for a new connection.
  std::shared_ptr<ssl_ctx_st> Context() { return context_->Current(); }
  // Whether the client on a connection may send requests, by its certificate. To be called after
  // the handshake.
  absl::Status CheckClient(ssl_st* connection) const;
  // Counts a handshake that failed; `error` is the text of OpenSSL's error.
  void CountFailure(std::string_view error) const;

 private:
  HttpTls(std::unique_ptr<ReloadingContext> context, bool wants_clients, TlsRefusals* refusals)
      : context_(std::move(context)), wants_clients_(wants_clients), refusals_(refusals) {}

  const std::unique_ptr<ReloadingContext> context_;
  const bool wants_clients_;
  TlsRefusals* const refusals_;
};

}  // namespace tandem
