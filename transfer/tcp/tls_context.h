#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transfer/byte_channel.h"
#include "transfer/tcp/socket.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tandem {

// Paths of PEM files: all three, or none for connections without TLS.
struct TlsFiles {
  std::string cert;  // this worker's certificate, then what leads from it to the authority
  std::string key;   // the private key of the first certificate, not encrypted
  std::string ca;    // the authorities whose certificates are trusted, on both sides

  // INVALID_ARGUMENT when some are given and some are not.
  absl::Status Check() const;
  bool enabled() const { return !cert.empty(); }
};

// Who this process is and whom it trusts: mutual TLS 1.3. Whoever holds a certificate that leads to
// an authority of `ca` is a worker of this cluster; names in certificates are not compared, since
// workers come and go at any address. The files are read once.
// Thread-safe once loaded; the channels must not outlive it.
class TlsContext {
 public:
  // INVALID_ARGUMENT with the file and OpenSSL's reason.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const TlsFiles& files);

  // TLS over a socket that is connected. Its Establish shakes hands; FAILED_PRECONDITION when the
  // peer shows no certificate that is trusted, does not trust ours, or does not speak TLS.
  std::unique_ptr<ByteChannel> Connected(UniqueFd socket) const;
  // The same on the side that accepted.
  std::unique_ptr<ByteChannel> Accepted(UniqueFd socket) const;

  // What the channels that there are now have for bytes under way, each at its most.
  size_t buffer_bytes() const;

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  using Context = std::unique_ptr<ssl_ctx_st, Free>;

  explicit TlsContext(Context context);

  const Context context_;
  mutable std::atomic<size_t> channels_ = 0;
};

}  // namespace tandem
