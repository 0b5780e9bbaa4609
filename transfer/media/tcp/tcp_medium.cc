#include "transfer/media/tcp/tcp_medium.h"

#include <openssl/ssl.h>

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"
#include "transfer/media/tcp/tls_channel.h"

namespace tandem {
namespace {

void SetRules(SSL_CTX* context) {
  TANDEM_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1, "TLS 1.3");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Sessions are not resumed: every connection authenticates anew.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, TlsChannel::kReadAheadBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const TlsFiles& files,
                                                             TlsRefusals* refusals) {
  RETURN_IF_ERROR(files.Check());
  ASSIGN_OR_RETURN(std::unique_ptr<ReloadingContext> context,
                   ReloadingContext::Open(files, &SetRules));
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(context), refusals));
}

std::unique_ptr<ByteChannel> TlsContext::NewChannel(UniqueFd socket, ChannelSide side) const {
  // OpenSSL's connection keeps a reference to the context that it was made of.
  const std::shared_ptr<SSL_CTX> context = context_->Current();
  return std::make_unique<TlsChannel>(
      context.get(), std::move(socket), side,
      TlsChannel::Watchers{.alive = channels_, .refusals = refusals_});
}

size_t TlsContext::buffer_bytes() const { return channels_ * TlsChannel::kBufferBytes; }

absl::StatusOr<std::unique_ptr<TcpMedium>> TcpMedium::Open(const TcpOptions& options) {
  std::unique_ptr<TlsContext> tls;
  if (options.tls != TlsFiles()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls, options.tls_refusals));
  }
  ASSIGN_OR_RETURN(TcpListener listener, TcpListener::Open(options.listen_host, options.listen_port,
                                                           options.advertised_host));
  return std::unique_ptr<TcpMedium>(new TcpMedium(std::move(listener), std::move(tls)));
}

absl::StatusOr<std::unique_ptr<ByteChannel>> TcpMedium::NewChannel(UniqueFd socket,
                                                                   ChannelSide side) {
  if (tls_ != nullptr) return tls_->NewChannel(std::move(socket), side);
  return std::make_unique<SocketChannel>(std::move(socket));
}

}  // namespace tandem
