#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/certificate_authority.h"

namespace tandem {

// Whether a file that is there may be replaced.
enum class Overwrite : bool { kNo, kYes };

// A folder with the certificates of a fleet: STEM.pem and STEM.key of each, ca.pem and ca.key of
// the authority. Keys can be read by their owner alone. Files are replaced whole.
class CertificateFolder {
 public:
  static constexpr char kAuthority[] = "ca";

  // Makes the folder where there is none. INVALID_ARGUMENT names the path.
  static absl::StatusOr<CertificateFolder> Open(const std::string& path);

  // The authority of the folder; makes one where there is none. FAILED_PRECONDITION where one of
  // its files is missing.
  absl::StatusOr<CertificateAuthority> OpenAuthority(std::chrono::seconds valid_for) const;
  // INVALID_ARGUMENT names a file that is there and must not be replaced.
  absl::Status Write(std::string_view stem, const IssuedCertificate& certificate,
                     Overwrite overwrite) const;

  std::string CertPath(std::string_view stem) const;
  std::string KeyPath(std::string_view stem) const;
  // The stems of all certificates, sorted.
  std::vector<std::string> Stems() const;

 private:
  explicit CertificateFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// A file of PEM as a whole. INVALID_ARGUMENT names it.
absl::StatusOr<std::string> ReadPemFile(const std::string& path);

}  // namespace tandem
