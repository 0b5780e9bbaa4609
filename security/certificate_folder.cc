#include "security/certificate_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "security/small_file.h"

namespace tandem {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kEverybodyReads = 0644;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

absl::Status CannotWrite(const std::string& path) {
  return InvalidArgument("cannot write \"{}\": {}", path, ErrnoMessage(errno));
}

// Written beside it and renamed, so that a process that reads the file again sees it whole.
absl::Status ReplaceFile(const std::string& path, std::string_view content, mode_t mode) {
  const std::string draft = fmt::format("{}.{}.new", path, getpid());
  unlink(draft.c_str());
  const UniqueFd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid() || fchmod(file.get(), mode) != 0) return CannotWrite(draft);
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return CannotWrite(draft);
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(file.get()) != 0 || rename(draft.c_str(), path.c_str()) != 0) return CannotWrite(path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CertificateFolder> CertificateFolder::Open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path, error)) {
    return InvalidArgument("\"{}\" is no folder and cannot be made one: {}", path,
                           error ? error.message() : "it is something else");
  }
  return CertificateFolder(path);
}

std::string CertificateFolder::CertPath(std::string_view stem) const {
  return fmt::format("{}/{}.pem", path_, stem);
}

std::string CertificateFolder::KeyPath(std::string_view stem) const {
  return fmt::format("{}/{}.key", path_, stem);
}

absl::StatusOr<CertificateAuthority> CertificateFolder::OpenAuthority(
    std::chrono::seconds valid_for) const {
  const std::string cert = CertPath(kAuthority);
  const std::string key = KeyPath(kAuthority);
  if (Exists(cert) != Exists(key)) {
    return FailedPrecondition(
        "\"{}\" and \"{}\" belong together, and one of them is missing: put it back, or remove the "
        "other to make a new authority",
        cert, key);
  }
  if (Exists(cert)) {
    ASSIGN_OR_RETURN(const std::string cert_pem, ReadPemFile(cert));
    ASSIGN_OR_RETURN(const std::string key_pem, ReadPemFile(key));
    absl::StatusOr<CertificateAuthority> authority = CertificateAuthority::Load(cert_pem, key_pem);
    if (!authority.ok()) return Annotate(authority.status(), cert);
    return authority;
  }
  ASSIGN_OR_RETURN(CertificateAuthority made,
                   CertificateAuthority::Create("Tandem development authority", valid_for));
  RETURN_IF_ERROR(
      Write(kAuthority, {.cert_pem = made.cert_pem(), .key_pem = made.key_pem()}, Overwrite::kNo));
  return made;
}

absl::Status CertificateFolder::Write(std::string_view stem, const IssuedCertificate& certificate,
                                      Overwrite overwrite) const {
  for (const std::string& path : {KeyPath(stem), CertPath(stem)}) {
    if (overwrite == Overwrite::kNo && Exists(path)) {
      return InvalidArgument("\"{}\" is there already: give --force to replace it", path);
    }
  }
  RETURN_IF_ERROR(ReplaceFile(KeyPath(stem), certificate.key_pem, kOwnerOnly));
  return ReplaceFile(CertPath(stem), certificate.cert_pem, kEverybodyReads);
}

std::vector<std::string> CertificateFolder::Stems() const {
  std::vector<std::string> stems;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    if (entry.path().extension() == ".pem") stems.push_back(entry.path().stem().string());
  }
  std::ranges::sort(stems);
  return stems;
}

absl::StatusOr<std::string> ReadPemFile(const std::string& path) {
  absl::StatusOr<std::string> content = ReadSmallFile(path);
  if (content.ok()) return content;
  return InvalidArgument("cannot read \"{}\": {}", path, std::string(content.status().message()));
}

}  // namespace tandem
