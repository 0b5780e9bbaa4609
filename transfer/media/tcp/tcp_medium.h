#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transfer/media/medium.h"
#include "transfer/media/tcp/name_resolver.h"
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
class TcpMedium final : public Medium {
 public:
  // UNAVAILABLE names the address at which it cannot listen, INVALID_ARGUMENT the file that TLS
  // cannot use.
  static absl::StatusOr<std::unique_ptr<TcpMedium>> Open(const TcpOptions& options);

  std::string_view name() const override { return "tcp"; }
  std::string address() const override { return address_; }
  absl::Status MayReach(std::string_view peer) const override;
  int listener_fd() const override { return listener_.get(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;
  // The buffers of the present TLS connections; connections without TLS have none.
  size_t buffer_bytes() const override { return tls_ != nullptr ? tls_->buffer_bytes() : 0; }

 private:
  TcpMedium(std::string address, UniqueFd listener, std::unique_ptr<TlsContext> tls)
      : address_(std::move(address)), listener_(std::move(listener)), tls_(std::move(tls)) {}

  std::unique_ptr<ByteChannel> Connected(UniqueFd socket) const;

  const std::string address_;
  const UniqueFd listener_;
  const std::unique_ptr<TlsContext> tls_;  // null without TLS
  NameResolver resolver_;
};

}  // namespace tandem
