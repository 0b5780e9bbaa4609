#include "security/tls_files.h"

#include "base/status.h"

namespace tandem {

absl::Status TlsFiles::Check(std::string_view flags) const {
  const int given = !cert.empty() + !key.empty() + !ca.empty();
  if (given == 0 || given == 3) return absl::OkStatus();
  return InvalidArgument(
      "TLS needs {0}-cert, {0}-key and {0}-ca, or none of them: got \"{1}\", \"{2}\", \"{3}\"",
      flags, cert, key, ca);
}

absl::Status TlsFiles::CheckClient() const {
  if (cert.empty() != key.empty()) {
    return InvalidArgument(
        "a certificate and its key belong together: got --tls-cert \"{}\" and --tls-key \"{}\"; "
        "give both or neither",
        cert, key);
  }
  if (!cert.empty() && ca.empty()) {
    return InvalidArgument(
        "--tls-cert \"{}\" without --tls-ca: give the file of the authorities that may have signed "
        "the server's certificate",
        cert);
  }
  return absl::OkStatus();
}

}  // namespace tandem
