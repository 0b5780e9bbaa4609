#include "transfer/media/tcp/tcp_medium.h"

#include <openssl/ssl.h>

#include "base/check.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"
#include "transfer/media/tcp/socket_medium.h"
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

class TcpMedium final : public SocketMedium {
 public:
  // `tls` is null without TLS.
  TcpMedium(TcpListener listener, std::unique_ptr<TlsContext> tls)
      : SocketMedium(std::move(listener)), tls_(std::move(tls)) {}

  std::string_view name() const override { return "tcp"; }
  // The buffers of the present TLS connections; connections without TLS have none.
  size_t buffer_bytes() const override { return tls_ != nullptr ? tls_->buffer_bytes() : 0; }

 private:
  absl::StatusOr<std::unique_ptr<ByteChannel>> NewChannel(UniqueFd socket,
                                                          ChannelSide side) override {
    if (tls_ != nullptr) return tls_->NewChannel(std::move(socket), side);
    return std::make_unique<SocketChannel>(std::move(socket));
  }

  const std::unique_ptr<TlsContext> tls_;
};

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

absl::StatusOr<std::unique_ptr<Medium>> OpenTcpMedium(const TcpOptions& options) {
  std::unique_ptr<TlsContext> tls;
  if (options.tls != TlsFiles()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls, options.tls_refusals));
  }
  ASSIGN_OR_RETURN(TcpListener listener, TcpListener::Open(options.listen_host, options.listen_port,
                                                           options.advertised_host));
  return std::make_unique<TcpMedium>(std::move(listener), std::move(tls));
}

}  // namespace tandem
