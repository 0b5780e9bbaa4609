#include "server/check/check_tls.h"

#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "security/certificate.h"
#include "security/tls_source.h"

namespace tandem {
namespace {

using SystemTime = std::chrono::system_clock::time_point;

// A time as "2026-11-29 13:37 UTC".
std::string DateText(SystemTime time) {
  const time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min);
}

absl::Status CheckValidity(const CertificateInfo& info, const std::string& path, SystemTime now) {
  if (now >= info.not_after) {
    return FailedPrecondition("{} expired at {}: issue a new certificate (`tandem certs`)", path,
                              DateText(info.not_after));
  }
  if (now < info.not_before) {
    return FailedPrecondition(
        "{} is valid from {} on, and it is {}: wait, or set the clock of this machine", path,
        DateText(info.not_before), DateText(now));
  }
  return absl::OkStatus();
}

// Checks the identity in a certificate in the same way as the peer of a connection will.
absl::Status CheckIdentity(const CertificateInfo& info, const TlsUse& use,
                           const std::string& path) {
  if (!use.identity) return absl::OkStatus();
  const PeerCheck check(TlsPort::kGrpc, nullptr);
  return check.Check({.shown = true, .subject = info.subject, .uris = info.uris}, *use.identity,
                     path);
}

void CheckExpiry(const CertificateInfo& info, const TlsUse& use, const std::string& path,
                 SystemTime now, Findings& findings) {
  const auto left = info.not_after - now;
  if (left >= kExpiryWarning) return;
  const auto days = std::chrono::duration_cast<std::chrono::hours>(left) / 24;
  findings.Add(Severity::kWarning, use.part,
               fmt::format("{} expires at {}, in {} days: issue a new certificate before that "
                           "(`tandem certs`); processes take changed files while they run",
                           path, DateText(info.not_after), days.count()));
}

}  // namespace

void CheckTls(const TlsFiles& files, const TlsUse& use, SystemTime now, Findings& findings) {
  if (files == TlsFiles()) return;
  const absl::StatusOr<TlsMaterial> material = LoadTlsMaterial(files);
  if (!findings.Check(use.part, Annotate(material.status(), use.flags))) return;
  const absl::StatusOr<CertificateInfo> info = ReadCertificateInfo(material->cert_pem);
  if (!findings.Check(use.part, Annotate(info.status(), files.cert))) return;
  if (!findings.Check(use.part, CheckValidity(*info, files.cert, now))) return;
  if (!files.ca.empty()) {
    findings.Check(use.part, Annotate(CheckTrusted(material->cert_pem, material->ca_pem),
                                      fmt::format("{} against {}", files.cert, files.ca)));
  }
  findings.Check(use.part, CheckIdentity(*info, use, files.cert));
  CheckExpiry(*info, use, files.cert, now, findings);
}

}  // namespace tandem
