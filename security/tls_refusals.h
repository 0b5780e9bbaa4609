#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace tandem {

// What somebody connected to.
enum class TlsPort : uint8_t { kGrpc, kKv, kHttp };

// Why a connection or a call was refused.
enum class TlsRefusalReason : uint8_t {
  kNoCertificate,  // none was shown where one is needed
  kUntrusted,      // expired, not yet valid, or of an authority that is not trusted here
  kNoIdentity,     // a trusted certificate without an identity of Tandem
  kWrongRole,
  kWrongName,
  kNotTls,     // the peer does not speak TLS
  kHandshake,  // anything else that ended a handshake, such as a peer that does not trust us
};

std::string_view Name(TlsPort port);             // "grpc"
std::string_view Name(TlsRefusalReason reason);  // "no_certificate"

// The reason that OpenSSL gives for a handshake that failed, as text, sorted into the above. gRPC
// and Asio pass on nothing but this text.
TlsRefusalReason ReasonOfHandshakeError(std::string_view text);

// Counts whom a process refused because of certificates and identities, and logs it, at most one
// line per port and reason in ten seconds. Thread-safe.
class TlsRefusals {
 public:
  struct Count {
    TlsPort port;
    TlsRefusalReason reason;
    uint64_t refused;
  };

  // `detail`: what was presented and what is needed; it is logged.
  void Add(TlsPort port, TlsRefusalReason reason, std::string_view detail);
  // The counts that are not 0.
  std::vector<Count> counts() const;

 private:
  static constexpr size_t kPorts = static_cast<size_t>(TlsPort::kHttp) + 1;
  static constexpr size_t kReasons = static_cast<size_t>(TlsRefusalReason::kHandshake) + 1;

  std::array<std::atomic<uint64_t>, kPorts* kReasons> counts_ = {};
  absl::Mutex mutex_;
  std::array<TimePoint, kPorts * kReasons> next_log_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace tandem
