#include "security/tls_refusals.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kLogInterval(10);

constexpr std::string_view kPortNames[] = {"grpc", "kv", "http"};
constexpr std::string_view kReasonNames[] = {"no_certificate", "untrusted",  "no_identity",
                                             "wrong_role",     "wrong_name", "not_tls",
                                             "handshake"};

constexpr std::pair<std::string_view, TlsRefusalReason> kTexts[] = {
    {"did not return a certificate", TlsRefusalReason::kNoCertificate},
    {"certificate verify failed", TlsRefusalReason::kUntrusted},
    {"wrong version number", TlsRefusalReason::kNotTls},
    {"http request", TlsRefusalReason::kNotTls},
    {"unexpected message", TlsRefusalReason::kNotTls},
    {"record length mismatch", TlsRefusalReason::kNotTls},
    {"packet length too long", TlsRefusalReason::kNotTls},
};

}  // namespace

std::string_view Name(TlsPort port) { return kPortNames[static_cast<size_t>(port)]; }

std::string_view Name(TlsRefusalReason reason) { return kReasonNames[static_cast<size_t>(reason)]; }

TlsRefusalReason ReasonOfHandshakeError(std::string_view text) {
  for (const auto& [part, reason] : kTexts) {
    if (text.find(part) != std::string_view::npos) return reason;
  }
  return TlsRefusalReason::kHandshake;
}

void TlsRefusals::Add(TlsPort port, TlsRefusalReason reason, std::string_view detail) {
  const size_t slot = static_cast<size_t>(port) * kReasons + static_cast<size_t>(reason);
  const uint64_t count = ++counts_[slot];
  const TimePoint now = std::chrono::steady_clock::now();
  {
    absl::MutexLock lock(&mutex_);
    if (now < next_log_[slot]) return;
    next_log_[slot] = now + kLogInterval;
  }
  LogWarn("tls refused port={} reason={} refused={} why=\"{}\"", Name(port), Name(reason), count,
          detail);
}

std::vector<TlsRefusals::Count> TlsRefusals::counts() const {
  std::vector<Count> all;
  for (size_t slot = 0; slot < counts_.size(); ++slot) {
    if (const uint64_t refused = counts_[slot]; refused > 0) {
      all.push_back({.port = static_cast<TlsPort>(slot / kReasons),
                     .reason = static_cast<TlsRefusalReason>(slot % kReasons),
                     .refused = refused});
    }
  }
  return all;
}

}  // namespace tandem
