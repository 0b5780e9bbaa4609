#include "transfer/tcp/tcp_medium.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "transfer/socket_channel.h"
#include "transfer/tcp/connecting_channel.h"

namespace tandem {
namespace {

std::string AddressOf(const TcpOptions& options, uint16_t port) {
  const std::string& host =
      options.advertised_host.empty() ? options.listen_host : options.advertised_host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpMedium>> TcpMedium::Open(const TcpOptions& options) {
  std::unique_ptr<TlsContext> tls;
  RETURN_IF_ERROR(options.tls.Check());
  if (options.tls.enabled()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls));
  }
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.listen_host, options.listen_port));
  std::string address = AddressOf(options, LocalPort(listener));
  return std::unique_ptr<TcpMedium>(
      new TcpMedium(std::move(address), std::move(listener), std::move(tls), options.zero_copy));
}

absl::Status TcpMedium::MayReach(std::string_view peer) const {
  return ParseHostPort(peer).status();
}

absl::StatusOr<std::unique_ptr<ByteChannel>> TcpMedium::Accept() {
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) {
    SetStreamOptions(socket);
    if (tls_ != nullptr) return tls_->Accepted(std::move(socket));
    return std::make_unique<SocketChannel>(std::move(socket));
  }
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    return ResourceExhausted("cannot accept a connection: {}", ErrnoMessage(errno));
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<ByteChannel>> TcpMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(HostPort place, ParseHostPort(peer));
  UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return Unavailable("cannot connect: {}", ErrnoMessage(errno));
  auto awaited = std::make_shared<AwaitedAddresses>(std::move(event));
  auto addresses = Resolve(place, NameLookup::kNumericOnly);
  if (addresses.ok()) {
    awaited->Arrived(std::move(addresses));
  } else if (!resolver_.Resolve(std::move(place), [awaited](auto resolved) {
               awaited->Arrived(std::move(resolved));
             })) {
    return Unavailable("cannot connect: too many host names wait to be resolved");
  }
  return std::make_unique<ConnectingChannel>(
      std::move(awaited), [this](UniqueFd socket) { return Connected(std::move(socket)); });
}

std::unique_ptr<ByteChannel> TcpMedium::Connected(UniqueFd socket) const {
  if (tls_ != nullptr) return tls_->Connected(std::move(socket));
  if (!ShallZeroCopy(zero_copy_, socket)) return std::make_unique<SocketChannel>(std::move(socket));
  return std::make_unique<ZeroCopyChannel>(std::move(socket));
}

}  // namespace tandem
