#include "transfer/media/tcp/tcp_medium.h"

#include "base/status.h"
#include "transfer/media/socket_channel.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<TcpMedium>> TcpMedium::Open(const TcpOptions& options) {
  std::unique_ptr<TlsContext> tls;
  RETURN_IF_ERROR(options.tls.Check());
  if (options.tls.enabled()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls));
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
