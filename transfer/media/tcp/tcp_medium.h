#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "security/reloading_context.h"
#include "security/tls_files.h"
#include "security/tls_refusals.h"
#include "transfer/media/medium.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// The certificate of this process and the authorities that it trusts, for mutual TLS 1.3. A peer
// whose certificate leads to an authority of `ca` and has the identity of a worker is let in. Which
// worker it is does not matter: frames name no worker, and who may push what is agreed over gRPC. A
// new channel uses the files as they are when it is made. Thread-safe; the channels must not
// outlive it.
class TlsContext {
 public:
  // Loads certificate, key and authorities. INVALID_ARGUMENT names the file and OpenSSL's reason.
  // `refusals` counts the peers that the channels refuse, and outlives it; null: they are not
  // counted.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const TlsFiles& files,
                                                          TlsRefusals* refusals = nullptr);

  // TLS over a connected socket. The channel's Establish makes the handshake. FAILED_PRECONDITION
  // when the peer shows no trusted certificate, does not trust this one, or does not speak TLS;
  // UNAUTHENTICATED or PERMISSION_DENIED when its certificate is not that of a worker.
  std::unique_ptr<ByteChannel> NewChannel(UniqueFd socket, ChannelSide side) const;

  // The most memory that the present channels may take for bytes under way.
  size_t buffer_bytes() const;

 private:
  TlsContext(std::unique_ptr<ReloadingContext> context, TlsRefusals* refusals)
      : context_(std::move(context)), refusals_(refusals) {}

  const std::unique_ptr<ReloadingContext> context_;
  TlsRefusals* const refusals_;
  mutable std::atomic<size_t> channels_ = 0;
};

struct TcpOptions {
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;     // 0: the system chooses
  std::string advertised_host;  // what address() names; empty: listen_host
  // Without files, connections are neither encrypted nor authenticated.
  TlsFiles tls;
  TlsRefusals* tls_refusals = nullptr;  // counts whom TLS refuses, and outlives the medium
};

// Opens the medium of TCP sockets and listens for connections. With TcpOptions::tls every connection
// uses mutual TLS. Addresses are "host:port". UNAVAILABLE names the address where listening fails,
// INVALID_ARGUMENT the file that TLS cannot use.
absl::StatusOr<std::unique_ptr<Medium>> OpenTcpMedium(const TcpOptions& options);

}  // namespace tandem
