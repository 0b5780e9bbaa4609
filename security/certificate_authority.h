#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/identity.h"

namespace tandem {

// A certificate and its private key, as PEM. The key is a secret.
struct IssuedCertificate {
  std::string cert_pem;
  std::string key_pem;
};

struct CertificateRequest {
  std::string common_name;           // shown to people; at most 64 bytes of it are used
  std::vector<Identity> identities;  // who the owner is
  std::vector<std::string> hosts;    // DNS names and IP addresses that clients may call it by
  // Relative to now.
  std::chrono::seconds valid_from{-std::chrono::minutes(5)};
  std::chrono::seconds valid_until{std::chrono::hours(24)};
};

// A certificate authority for development and tests: it has its key in memory and keeps no list of
// what it signed. Keys are on the curve P-256. Thread-safe once made.
class CertificateAuthority {
 public:
  static absl::StatusOr<CertificateAuthority> Create(std::string_view common_name,
                                                     std::chrono::seconds valid_for);
  // INVALID_ARGUMENT with OpenSSL's reason, or when the key is not the certificate's.
  static absl::StatusOr<CertificateAuthority> Load(std::string_view cert_pem,
                                                   std::string_view key_pem);
  CertificateAuthority(CertificateAuthority&&) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // A new key and a certificate for it, good for both sides of a connection. INVALID_ARGUMENT names
  // the host that is neither a DNS name nor an IP address.
  absl::StatusOr<IssuedCertificate> Issue(const CertificateRequest& request) const;

  std::string cert_pem() const;
  std::string key_pem() const;

 private:
  struct Parts;
  explicit CertificateAuthority(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
