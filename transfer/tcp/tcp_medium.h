#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transfer/medium.h"
#include "transfer/tcp/name_resolver.h"
#include "transfer/tcp/tls_context.h"
#include "transfer/tcp/zero_copy_channel.h"

namespace tandem {

struct TcpOptions {
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;              // 0: the system chooses
  std::string advertised_host;           // what address() names; empty: listen_host
  ZeroCopy zero_copy = ZeroCopy::kAuto;  // of what is sent without TLS
  TlsFiles tls;  // none: bytes travel as they are, and nobody has to prove anything
};

// TCP sockets, with mutual TLS on every connection where there are files for it. Addresses are
// "host:port".
class TcpMedium final : public Medium {
 public:
  // UNAVAILABLE with the address when it cannot listen there, INVALID_ARGUMENT with the file that
  // TLS cannot use.
  static absl::StatusOr<std::unique_ptr<TcpMedium>> Open(const TcpOptions& options);

  std::string_view name() const override { return "tcp"; }
  std::string address() const override { return address_; }
  absl::Status MayReach(std::string_view peer) const override;
  int listener_fd() const override { return listener_.get(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;
  // Of TLS connections, while they live; what goes as it is needs none.
  size_t buffer_bytes() const override { return tls_ != nullptr ? tls_->buffer_bytes() : 0; }

 private:
  TcpMedium(std::string address, UniqueFd listener, std::unique_ptr<TlsContext> tls,
            ZeroCopy zero_copy)
      : address_(std::move(address)),
        listener_(std::move(listener)),
        tls_(std::move(tls)),
        zero_copy_(zero_copy) {}

  std::unique_ptr<ByteChannel> Connected(UniqueFd socket) const;

  const std::string address_;
  const UniqueFd listener_;
  const std::unique_ptr<TlsContext> tls_;  // null without TLS
  const ZeroCopy zero_copy_;
  NameResolver resolver_;
};

}  // namespace tandem
