#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
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
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  using Context = std::unique_ptr<ssl_ctx_st, Free>;

  explicit TlsContext(Context context) : context_(std::move(context)) {}

  const Context context_;
  mutable std::atomic<size_t> channels_ = 0;
};

}  // namespace tandem
