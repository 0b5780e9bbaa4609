#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "transfer/media/tcp/socket_medium.h"
#include "transfer/media/tcp/tls_context.h"

namespace tandem {

struct TcpOptions {
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;     // 0: the system chooses
  std::string advertised_host;  // what address() names; empty: listen_host
  // Without files, connections are neither encrypted nor authenticated.
  TlsFiles tls;
};

// TCP sockets. With TcpOptions::tls every connection uses mutual TLS. Addresses are "host:port".
class TcpMedium final : public SocketMedium {
 public:
  // UNAVAILABLE names the address at which it cannot listen, INVALID_ARGUMENT the file that TLS
  // cannot use.
  static absl::StatusOr<std::unique_ptr<TcpMedium>> Open(const TcpOptions& options);

  std::string_view name() const override { return "tcp"; }
  // The buffers of the present TLS connections; connections without TLS have none.
  size_t buffer_bytes() const override { return tls_ != nullptr ? tls_->buffer_bytes() : 0; }

 private:
  TcpMedium(TcpListener listener, std::unique_ptr<TlsContext> tls)
      : SocketMedium(std::move(listener)), tls_(std::move(tls)) {}

  absl::StatusOr<std::unique_ptr<ByteChannel>> NewChannel(UniqueFd socket,
                                                          ChannelSide side) override;

  const std::unique_ptr<TlsContext> tls_;  // null without TLS
};

}  // namespace tandem
