#include "security/openssl_parts.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tandem {
namespace {

// Without this callback OpenSSL would ask for the password of a key on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

OwnedBio BioOf(std::string_view text) {
  OwnedBio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  TANDEM_CHECK(bio != nullptr, "a buffer of OpenSSL");
  return bio;
}

std::string TakeText(BIO* bio) {
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio, &bytes);
  return std::string(bytes, static_cast<size_t>(count));
}

std::string TlsReason(unsigned long error) {
  if (ERR_SYSTEM_ERROR(error)) return ErrnoMessage(ERR_GET_REASON(error));
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : fmt::format("error {:#x}", error);
}

}  // namespace

std::string TakeTlsErrors() {
  std::string text;
  while (const unsigned long error = ERR_get_error()) {
    if (!text.empty()) text += "; ";
    text += TlsReason(error);
  }
  return text.empty() ? "no reason given" : text;
}

absl::StatusOr<std::vector<OwnedX509>> ParseCertificates(std::string_view pem) {
  ERR_clear_error();
  const OwnedBio bio = BioOf(pem);
  std::vector<OwnedX509> all;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    all.emplace_back(certificate);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string errors = TakeTlsErrors();
  if (all.empty() || !at_end) return InvalidArgument("{}", errors);
  return all;
}

absl::StatusOr<OwnedKey> ParseKey(std::string_view pem) {
  ERR_clear_error();
  OwnedKey key(PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) return InvalidArgument("{}", TakeTlsErrors());
  return key;
}

std::string PemOf(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  TANDEM_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1, "a certificate as PEM");
  return TakeText(bio.get());
}

std::string PemOf(EVP_PKEY* key) {
  const OwnedBio bio(BIO_new(BIO_s_secmem()));
  TANDEM_CHECK(
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
      "a key as PEM");
  return TakeText(bio.get());
}

}  // namespace tandem
