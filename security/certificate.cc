#include "security/certificate.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "base/status.h"
#include "security/openssl_parts.h"

namespace tandem {
namespace {

using OwnedNames = std::unique_ptr<GENERAL_NAMES, OpensslFree<&GENERAL_NAMES_free>>;

std::string_view BytesOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string AddressText(std::string_view bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  const int family = bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET6 && bytes.size() != sizeof(in6_addr)) return "(no address)";
  inet_ntop(family, bytes.data(), text, sizeof(text));
  return text;
}

std::chrono::system_clock::time_point TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

std::string SubjectOf(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(count));
}

void AddNames(X509* certificate, CertificateInfo& info) {
  const OwnedNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) info.uris.emplace_back(BytesOf(name->d.ia5));
    if (name->type == GEN_DNS) info.hosts.emplace_back(BytesOf(name->d.ia5));
    if (name->type == GEN_IPADD) info.hosts.push_back(AddressText(BytesOf(name->d.ip)));
  }
}

}  // namespace

CertificateInfo InfoOf(X509* certificate) {
  CertificateInfo info;
  info.subject = SubjectOf(certificate);
  AddNames(certificate, info);
  info.is_authority = X509_check_ca(certificate) == 1;
  info.not_before = TimeOf(X509_get0_notBefore(certificate));
  info.not_after = TimeOf(X509_get0_notAfter(certificate));
  return info;
}

absl::StatusOr<CertificateInfo> ReadCertificateInfo(std::string_view pem) {
  absl::StatusOr<std::vector<OwnedX509>> certificates = ParseCertificates(pem);
  if (!certificates.ok()) return certificates.status();
  return InfoOf(certificates->front().get());
}

absl::Status CheckTrusted(std::string_view pem, std::string_view ca_pem) {
  ASSIGN_OR_RETURN(const std::vector<OwnedX509> chain, ParseCertificates(pem));
  ASSIGN_OR_RETURN(const std::vector<OwnedX509> authorities, ParseCertificates(ca_pem));
  const std::unique_ptr<X509_STORE, OpensslFree<&X509_STORE_free>> store(X509_STORE_new());
  for (const OwnedX509& authority : authorities) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> others(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (const OwnedX509& certificate : chain) sk_X509_push(others.get(), certificate.get());
  const std::unique_ptr<X509_STORE_CTX, OpensslFree<&X509_STORE_CTX_free>> check(
      X509_STORE_CTX_new());
  X509_STORE_CTX_init(check.get(), store.get(), chain.front().get(), others.get());
  if (X509_verify_cert(check.get()) == 1) return absl::OkStatus();
  return FailedPrecondition("{}",
                            X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get())));
}

PeerCertificate PeerCertificateOf(SSL* connection) {
  const OwnedX509 certificate(SSL_get1_peer_certificate(connection));
  if (certificate == nullptr) return {};
  CertificateInfo info = InfoOf(certificate.get());
  return {.shown = true, .subject = std::move(info.subject), .uris = std::move(info.uris)};
}

}  // namespace tandem
