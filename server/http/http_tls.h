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

// TLS of an HTTP port, version 1.2 or later, whose new connections use the files as they are then.
// Thread-safe.
class HttpTls {
 public:
  // Null where no files are given. INVALID_ARGUMENT names the flag or the file.
  static absl::StatusOr<std::unique_ptr<HttpTls>> Open(const HttpServerOptions& options);

  // What a new connection is made of.
  std::shared_ptr<ssl_ctx_st> Context() { return context_->Current(); }
  // Whether the client on a connection whose handshake is done may ask for anything.
  absl::Status CheckClient(ssl_st* connection) const;
  // Counts a handshake that failed with that error of OpenSSL.
  void CountFailure(std::string_view error) const;

 private:
  HttpTls(std::unique_ptr<ReloadingContext> context, bool wants_clients, TlsRefusals* refusals)
      : context_(std::move(context)), wants_clients_(wants_clients), refusals_(refusals) {}

  const std::unique_ptr<ReloadingContext> context_;
  const bool wants_clients_;
  TlsRefusals* const refusals_;
};

}  // namespace tandem
