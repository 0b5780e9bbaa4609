#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "security/certificate_authority.h"
#include "security/tls_files.h"

namespace tandem {

// A certificate authority made for one test, and certificates that it signs, as PEM files in a
// directory of the test. No key is kept in the tree.
class TestAuthority {
 public:
  // Writes `directory`/`name`.ca.pem. Fails the test when OpenSSL cannot.
  TestAuthority(std::string directory, std::string name);

  enum class Validity : uint8_t { kNow, kExpired };
  // A new key and a certificate of this authority for it, with the identity of that worker. The
  // files trust this authority. `addresses`: what clients may have called its owner, as
  // "IP:127.0.0.1,DNS:localhost".
  TlsFiles Issue(std::string_view worker, Validity validity = Validity::kNow,
                 const std::string& addresses = "") const;
  // The same with the identities that these URIs are, for loopback.
  TlsFiles IssueFor(std::string_view stem, const std::vector<std::string>& uris,
                    Validity validity = Validity::kNow) const;

  const std::string& ca_file() const { return ca_file_; }

 private:
  TlsFiles Write(std::string_view stem, CertificateRequest request, Validity validity) const;

  const std::string directory_;
  const std::string name_;
  const std::string ca_file_;
  const CertificateAuthority authority_;
};

}  // namespace tandem
