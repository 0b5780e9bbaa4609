#include "tests/support/test_certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

constexpr long kDaySeconds = 24 * 3600;

Key NewKey() { return Key(EVP_EC_gen("P-256"), &EVP_PKEY_free); }

void AddExtension(X509* certificate, int kind, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
  ASSERT_NE(extension, nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Unsigned, valid from `from` to `until` seconds from now.
Certificate Unsigned(std::string_view common_name, EVP_PKEY* key, long from, long until) {
  Certificate certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()),
                   static_cast<long>(std::hash<std::string_view>()(common_name) & 0x7FFFFFFF));
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), until);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.data()),
                             static_cast<int>(common_name.size()), -1, 0);
  return certificate;
}

struct CloseFile {
  void operator()(FILE* file) const { fclose(file); }
};

std::unique_ptr<FILE, CloseFile> Create(const std::string& path) {
  std::unique_ptr<FILE, CloseFile> file(fopen(path.c_str(), "w"));
  EXPECT_NE(file, nullptr) << path;
  return file;
}

void WriteCertificate(const std::string& path, X509* certificate) {
  EXPECT_EQ(PEM_write_X509(Create(path).get(), certificate), 1);
}

}  // namespace

struct TestAuthority::Keys {
  Key key = NewKey();
  Certificate certificate{nullptr, &X509_free};
};

TestAuthority::TestAuthority(std::string directory, std::string name)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      ca_file_(fmt::format("{}/{}.ca.pem", directory_, name_)),
      keys_(new Keys) {
  keys_->certificate = Unsigned(name_, keys_->key.get(), -kDaySeconds, kDaySeconds);
  X509* certificate = keys_->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate, NID_key_usage, "critical,keyCertSign");
  EXPECT_GT(X509_sign(certificate, keys_->key.get(), EVP_sha256()), 0);
  WriteCertificate(ca_file_, certificate);
}

TestAuthority::~TestAuthority() { delete keys_; }

TlsFiles TestAuthority::Issue(std::string_view worker, Validity validity,
                              const std::string& addresses) const {
  const Key key = NewKey();
  const long until = validity == Validity::kNow ? kDaySeconds : -kDaySeconds / 2;
  const Certificate certificate = Unsigned(worker, key.get(), -kDaySeconds, until);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  if (!addresses.empty()) {
    AddExtension(certificate.get(), NID_subject_alt_name, addresses.c_str());
  }
  EXPECT_GT(X509_sign(certificate.get(), keys_->key.get(), EVP_sha256()), 0);
  const std::string stem = fmt::format("{}/{}.{}", directory_, name_, worker);
  const TlsFiles files = {.cert = stem + ".pem", .key = stem + ".key", .ca = ca_file_};
  WriteCertificate(files.cert, certificate.get());
  EXPECT_EQ(PEM_write_PrivateKey(Create(files.key).get(), key.get(), nullptr, nullptr, 0, nullptr,
                                 nullptr),
            1);
  return files;
}

}  // namespace tandem
