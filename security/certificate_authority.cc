#include "security/certificate_authority.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "security/openssl_parts.h"

namespace tandem {
namespace {

using OwnedNames = std::unique_ptr<GENERAL_NAMES, OpensslFree<&GENERAL_NAMES_free>>;
using OwnedNumber = std::unique_ptr<BIGNUM, OpensslFree<&BN_free>>;
using OwnedExtension = std::unique_ptr<X509_EXTENSION, OpensslFree<&X509_EXTENSION_free>>;

constexpr size_t kMostCommonNameBytes = 64;  // X.520
constexpr size_t kMostHostBytes = 253;
constexpr int kSerialBits = 127;

absl::Status OpensslFailed() {
  return Internal("OpenSSL could not make a certificate: {}", TakeTlsErrors());
}

absl::StatusOr<OwnedKey> NewKey() {
  OwnedKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslFailed();
  return key;
}

bool IsDnsName(std::string_view host) {
  return !host.empty() && host.size() <= kMostHostBytes &&
         std::ranges::all_of(host, [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '*' || c == '_';
         });
}

void AddText(GENERAL_NAMES* names, int type, std::string_view value) {
  ASN1_IA5STRING* text = ASN1_IA5STRING_new();
  ASN1_STRING_set(text, value.data(), static_cast<int>(value.size()));
  GENERAL_NAME* name = GENERAL_NAME_new();
  GENERAL_NAME_set0_value(name, type, text);
  sk_GENERAL_NAME_push(names, name);
}

absl::Status AddHost(GENERAL_NAMES* names, const std::string& host) {
  if (ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str())) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, GEN_IPADD, address);
    sk_GENERAL_NAME_push(names, name);
    return absl::OkStatus();
  }
  TakeTlsErrors();  // of an address that is none
  if (!IsDnsName(host)) {
    return InvalidArgument("host \"{}\" is neither a DNS name nor an IP address", host);
  }
  AddText(names, GEN_DNS, host);
  return absl::OkStatus();
}

absl::Status AddAlternativeNames(X509* certificate, const CertificateRequest& request) {
  const OwnedNames names(GENERAL_NAMES_new());
  for (const Identity& identity : request.identities) {
    AddText(names.get(), GEN_URI, identity.Uri());
  }
  for (const std::string& host : request.hosts) RETURN_IF_ERROR(AddHost(names.get(), host));
  if (sk_GENERAL_NAME_num(names.get()) == 0) return absl::OkStatus();
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_APPEND) ==
      1) {
    return absl::OkStatus();
  }
  return OpensslFailed();
}

// `value` is ours, never a user's: OpenSSL's language for extensions could express anything.
absl::Status AddExtension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const OwnedExtension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  if (extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1) {
    return absl::OkStatus();
  }
  return OpensslFailed();
}

// Without issuer, extensions and signature.
absl::StatusOr<OwnedX509> Draft(std::string_view common_name, EVP_PKEY* key,
                                std::chrono::seconds from, std::chrono::seconds until) {
  OwnedX509 certificate(X509_new());
  const OwnedNumber serial(BN_new());
  X509* const draft = certificate.get();
  const std::string_view name = common_name.substr(0, kMostCommonNameBytes);
  const bool made = draft != nullptr && X509_set_version(draft, X509_VERSION_3) == 1 &&
                    BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
                    BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(draft)) != nullptr &&
                    X509_gmtime_adj(X509_getm_notBefore(draft), from.count()) != nullptr &&
                    X509_gmtime_adj(X509_getm_notAfter(draft), until.count()) != nullptr &&
                    X509_set_pubkey(draft, key) == 1 &&
                    X509_NAME_add_entry_by_txt(X509_get_subject_name(draft), "CN", MBSTRING_UTF8,
                                               reinterpret_cast<const unsigned char*>(name.data()),
                                               static_cast<int>(name.size()), -1, 0) == 1;
  if (!made) return OpensslFailed();
  return certificate;
}

absl::Status Sign(X509* certificate, X509* issuer, EVP_PKEY* key) {
  const bool is_signed = X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
                         X509_sign(certificate, key, EVP_sha256()) > 0;
  return is_signed ? absl::OkStatus() : OpensslFailed();
}

}  // namespace

struct CertificateAuthority::Parts {
  OwnedKey key;
  OwnedX509 certificate;
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;
CertificateAuthority& CertificateAuthority::operator=(CertificateAuthority&&) noexcept = default;
CertificateAuthority::~CertificateAuthority() = default;

absl::StatusOr<CertificateAuthority> CertificateAuthority::Create(std::string_view common_name,
                                                                  std::chrono::seconds valid_for) {
  auto parts = std::make_unique<Parts>();
  ASSIGN_OR_RETURN(parts->key, NewKey());
  ASSIGN_OR_RETURN(parts->certificate, Draft(common_name, parts->key.get(),
                                             CertificateRequest().valid_from, valid_for));
  X509* const self = parts->certificate.get();
  RETURN_IF_ERROR(AddExtension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  RETURN_IF_ERROR(AddExtension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign"));
  RETURN_IF_ERROR(AddExtension(self, self, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(Sign(self, self, parts->key.get()));
  return CertificateAuthority(std::move(parts));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Load(std::string_view cert_pem,
                                                                std::string_view key_pem) {
  auto parts = std::make_unique<Parts>();
  ASSIGN_OR_RETURN(std::vector<OwnedX509> certificates, ParseCertificates(cert_pem));
  parts->certificate = std::move(certificates.front());
  ASSIGN_OR_RETURN(parts->key, ParseKey(key_pem));
  if (X509_check_private_key(parts->certificate.get(), parts->key.get()) != 1) {
    return InvalidArgument("the key is not the certificate's: {}", TakeTlsErrors());
  }
  if (X509_check_ca(parts->certificate.get()) != 1) {
    return InvalidArgument("the certificate is not that of an authority");
  }
  return CertificateAuthority(std::move(parts));
}

absl::StatusOr<IssuedCertificate> CertificateAuthority::Issue(
    const CertificateRequest& request) const {
  ASSIGN_OR_RETURN(const OwnedKey key, NewKey());
  ASSIGN_OR_RETURN(const OwnedX509 certificate,
                   Draft(request.common_name, key.get(), request.valid_from, request.valid_until));
  X509* const made = certificate.get();
  X509* const issuer = parts_->certificate.get();
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_key_usage, "critical,digitalSignature"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_ext_key_usage, "serverAuth,clientAuth"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_authority_key_identifier, "keyid"));
  RETURN_IF_ERROR(AddAlternativeNames(made, request));
  RETURN_IF_ERROR(Sign(made, issuer, parts_->key.get()));
  return IssuedCertificate{.cert_pem = PemOf(made), .key_pem = PemOf(key.get())};
}

std::string CertificateAuthority::cert_pem() const { return PemOf(parts_->certificate.get()); }
std::string CertificateAuthority::key_pem() const { return PemOf(parts_->key.get()); }

}  // namespace tandem
