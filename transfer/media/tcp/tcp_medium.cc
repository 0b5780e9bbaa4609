#include "transfer/media/tcp/tcp_medium.h"

#include <utility>

#include "base/status.h"
#include "transfer/media/socket_channel.h"
#include "transfer/media/tcp/connecting_channel.h"

namespace tandem {
absl::StatusOr<std::unique_ptr<TcpMedium>> TcpMedium::Open(const TcpOptions& options) {
  std::unique_ptr<TlsContext> tls;
  RETURN_IF_ERROR(options.tls.Check());
  if (options.tls.enabled()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls));
  }
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.listen_host, options.listen_port));
  std::string address =
      HostPortText(options.advertised_host.empty() ? options.listen_host : options.advertised_host,
                   LocalPort(listener));
  return std::unique_ptr<TcpMedium>(
      new TcpMedium(std::move(address), std::move(listener), std::move(tls)));
}

absl::Status TcpMedium::MayReach(std::string_view peer) const {
  return ParseHostPort(peer).status();
}

absl::StatusOr<std::unique_ptr<ByteChannel>> TcpMedium::Accept() {
  ASSIGN_OR_RETURN(UniqueFd socket, AcceptStream(listener_));
  if (!socket.valid()) return nullptr;
  if (tls_ != nullptr) return tls_->Accepted(std::move(socket));
  return std::make_unique<SocketChannel>(std::move(socket));
}

absl::StatusOr<std::unique_ptr<ByteChannel>> TcpMedium::Connect(std::string_view peer) {
  return ConnectByName(peer, resolver_,
                       [this](UniqueFd socket) { return Connected(std::move(socket)); });
}

std::unique_ptr<ByteChannel> TcpMedium::Connected(UniqueFd socket) const {
  if (tls_ != nullptr) return tls_->Connected(std::move(socket));
  return std::make_unique<SocketChannel>(std::move(socket));
}

}  // namespace tandem
