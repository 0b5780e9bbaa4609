#include "security/tls_source.h"

#include <sys/stat.h>

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "security/certificate.h"
#include "security/openssl_parts.h"
#include "security/small_file.h"

namespace tandem {
namespace {

absl::Status Unusable(std::string_view what, const std::string& path, const absl::Status& why) {
  return InvalidArgument("TLS: cannot use {} \"{}\": {}", what, path, std::string(why.message()));
}

absl::Status LoadCertificate(const TlsFiles& files, TlsMaterial& material) {
  absl::StatusOr<std::string> cert = ReadSmallFile(files.cert);
  if (!cert.ok()) return Unusable("certificate", files.cert, cert.status());
  const auto certificates = ParseCertificates(*cert);
  if (!certificates.ok()) return Unusable("certificate", files.cert, certificates.status());
  absl::StatusOr<std::string> key_text = ReadSmallFile(files.key);
  if (!key_text.ok()) return Unusable("private key", files.key, key_text.status());
  const auto key = ParseKey(*key_text);
  if (!key.ok()) return Unusable("private key", files.key, key.status());
  X509* const leaf = certificates->front().get();
  if (X509_check_private_key(leaf, key->get()) != 1) {
    return Unusable("private key", files.key,
                    InvalidArgument("it is not that of the certificate \"{}\": {}", files.cert,
                                    TakeTlsErrors()));
  }
  if (InfoOf(leaf).not_after < std::chrono::system_clock::now()) {
    LogWarn("certificate=\"{}\" has expired: others refuse it; replace the file", files.cert);
  }
  material.cert_pem = *std::move(cert);
  material.key_pem = *std::move(key_text);
  return absl::OkStatus();
}

absl::Status LoadAuthorities(const TlsFiles& files, TlsMaterial& material) {
  absl::StatusOr<std::string> ca = ReadSmallFile(files.ca);
  if (!ca.ok()) return Unusable("certificate authorities", files.ca, ca.status());
  if (const auto parsed = ParseCertificates(*ca); !parsed.ok()) {
    return Unusable("certificate authorities", files.ca, parsed.status());
  }
  material.ca_pem = *std::move(ca);
  return absl::OkStatus();
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsFiles& files) {
  TlsMaterial material;
  if (!files.cert.empty()) RETURN_IF_ERROR(LoadCertificate(files, material));
  if (!files.ca.empty()) RETURN_IF_ERROR(LoadAuthorities(files, material));
  return material;
}

TlsSource::Stamp TlsSource::StampOf(const std::string& path) {
  struct stat about {};
  if (path.empty() || stat(path.c_str(), &about) != 0) return {};
  return {.device = static_cast<int64_t>(about.st_dev),
          .inode = static_cast<int64_t>(about.st_ino),
          .modified_ns = Nanoseconds(about.st_mtim),
          .changed_ns = Nanoseconds(about.st_ctim),
          .bytes = about.st_size};
}

TlsSource::Stamps TlsSource::StampsOf(const TlsFiles& files) {
  return {StampOf(files.cert), StampOf(files.key), StampOf(files.ca)};
}

TlsSource::TlsSource(TlsFiles files, Duration recheck, const Stamps& stamps, TlsMaterial material)
    : files_(std::move(files)),
      recheck_(recheck),
      next_check_(std::chrono::steady_clock::now() + recheck),
      stamps_(stamps),
      material_(std::make_shared<const TlsMaterial>(std::move(material))) {}

absl::StatusOr<std::shared_ptr<TlsSource>> TlsSource::Open(const TlsFiles& files,
                                                           Duration recheck) {
  // Looked at before they are read: a change in between is seen at the next look.
  const Stamps stamps = StampsOf(files);
  ASSIGN_OR_RETURN(TlsMaterial material, LoadTlsMaterial(files));
  return std::shared_ptr<TlsSource>(new TlsSource(files, recheck, stamps, std::move(material)));
}

std::shared_ptr<const TlsMaterial> TlsSource::Current() {
  absl::MutexLock lock(&mutex_);
  const TimePoint now = std::chrono::steady_clock::now();
  if (now < next_check_) return material_;
  next_check_ = now + recheck_;
  const Stamps stamps = StampsOf(files_);
  if (stamps == stamps_) return material_;
  stamps_ = stamps;
  absl::StatusOr<TlsMaterial> loaded = LoadTlsMaterial(files_);
  if (loaded.ok()) {
    material_ = std::make_shared<const TlsMaterial>(*std::move(loaded));
    LogInfo("certificate=\"{}\" was read again", files_.cert.empty() ? files_.ca : files_.cert);
  } else {
    LogWarn("changed TLS files cannot be used, the former ones stay in use status=\"{}\"",
            loaded.status().ToString());
  }
  return material_;
}

}  // namespace tandem
