#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/peer_check.h"

struct ssl_st;   // OpenSSL's SSL
struct x509_st;  // X509

namespace tandem {

// What a certificate says of its owner.
struct CertificateInfo {
  std::string subject;             // "CN=decode-0"
  std::vector<std::string> uris;   // of the subject alternative names; identities are among them
  std::vector<std::string> hosts;  // likewise the DNS names and IP addresses
  bool is_authority = false;
  std::chrono::system_clock::time_point not_before;
  std::chrono::system_clock::time_point not_after;
};

CertificateInfo InfoOf(x509_st* certificate);
// Reads the first certificate of a PEM text. INVALID_ARGUMENT with OpenSSL's reason.
absl::StatusOr<CertificateInfo> ReadCertificateInfo(std::string_view pem);

// Whether the first certificate of `pem` is valid now and leads to an authority of `ca_pem` by the
// others. FAILED_PRECONDITION says why not, INVALID_ARGUMENT which PEM cannot be read.
absl::Status CheckTrusted(std::string_view pem, std::string_view ca_pem);

// What the other side has shown on a connection whose handshake is done.
PeerCertificate PeerCertificateOf(ssl_st* connection);

}  // namespace tandem
