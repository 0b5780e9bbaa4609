#include "server/http/http_tls.h"

#include <openssl/ssl.h>

#include <string>

#include "base/check.h"
#include "base/status.h"
#include "security/certificate.h"

namespace tandem {
namespace {

void SetHttpRules(SSL_CTX* context) {
  TANDEM_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1, "TLS 1.2");
  // Idle connections keep no buffers for records, which take 34 KiB.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
}

// The rules for a server that asks clients for certificates. Sessions are not resumed, so that each
// connection shows its certificate anew.
void SetHttpRulesWithClients(SSL_CTX* context) {
  SetHttpRules(context);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpTls>> HttpTls::Open(const HttpServerOptions& options) {
  const HttpTlsFiles& files = options.tls;
  if (files.cert.empty() && files.key.empty()) return nullptr;
  if (files.cert.empty() || files.key.empty()) {
    return InvalidArgument(
        "TLS needs a certificate and its key: give both --http-tls-cert and --http-tls-key");
  }
  const bool wants_clients = !files.client_ca.empty();
  ASSIGN_OR_RETURN(
      std::unique_ptr<ReloadingContext> context,
      ReloadingContext::Open({.cert = files.cert, .key = files.key, .ca = files.client_ca},
                             wants_clients ? &SetHttpRulesWithClients : &SetHttpRules));
  return std::unique_ptr<HttpTls>(
      new HttpTls(std::move(context), wants_clients, options.tls_refusals));
}

absl::Status HttpTls::CheckClient(SSL* connection) const {
  if (!wants_clients_) return absl::OkStatus();
  return PeerCheck(TlsPort::kHttp, refusals_)
      .Check(PeerCertificateOf(connection),
             {.roles = {IdentityRole::kClient, IdentityRole::kAdmin}}, "HTTPS");
}

void HttpTls::CountFailure(std::string_view error) const {
  if (refusals_ == nullptr) return;
  refusals_->Add(TlsPort::kHttp, ReasonOfHandshakeError(error), error);
}

}  // namespace tandem
