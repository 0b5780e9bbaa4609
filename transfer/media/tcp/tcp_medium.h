#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/tcp/socket_medium.h"
#include "transfer/wire/byte_channel.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tandem {

// Paths of PEM files: all three are given, or none for connections without TLS.
struct TlsFiles {
  std::string cert;  // this worker's certificate and the chain from it to the authority
  std::string key;   // the private key of that certificate, not encrypted
  std::string ca;    // the trusted authorities

  // INVALID_ARGUMENT when only some are given.
  absl::Status Check() const;
  bool enabled() const { return !cert.empty(); }
};

// The certificate of this process and the authorities that it trusts, for mutual TLS 1.3. A peer
// whose certificate leads to an authority of `ca` is a worker of this cluster. Names in certificates
// are not compared, because workers come and go at any address. The files are read once.
// Thread-safe after Load; the channels must not outlive it.
class TlsContext {
 public:
  // INVALID_ARGUMENT names the file and OpenSSL's reason.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const TlsFiles& files);

  // TLS over a connected socket. The channel's Establish makes the handshake. FAILED_PRECONDITION
  // when the peer shows no trusted certificate, does not trust this one, or does not speak TLS.
  std::unique_ptr<ByteChannel> NewChannel(UniqueFd socket, ChannelSide side) const;

  // The most memory that the present channels may take for bytes under way.
  size_t buffer_bytes() const;

 private:
  using Context = std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)>;

  explicit TlsContext(Context context) : context_(std::move(context)) {}

  const Context context_;
  mutable std::atomic<size_t> channels_ = 0;
};

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
