#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// OpenSSL's objects with owners, and their PEM: for sources that call OpenSSL.
namespace tandem {

template <auto free>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};

using OwnedBio = std::unique_ptr<BIO, OpensslFree<&BIO_free_all>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, OpensslFree<&EVP_PKEY_free>>;
using OwnedX509 = std::unique_ptr<X509, OpensslFree<&X509_free>>;

// Returns and clears the errors that OpenSSL has queued on this thread.
std::string TakeTlsErrors();

// All certificates of a PEM text, in order. INVALID_ARGUMENT without one, or with a damaged one.
absl::StatusOr<std::vector<OwnedX509>> ParseCertificates(std::string_view pem);
// The first private key of a PEM text. INVALID_ARGUMENT without one, or for an encrypted one.
absl::StatusOr<OwnedKey> ParseKey(std::string_view pem);

std::string PemOf(X509* certificate);
std::string PemOf(EVP_PKEY* key);

}  // namespace tandem
