#include "security/reloading_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "security/openssl_parts.h"

namespace tandem {
namespace {

absl::Status Refused(std::string_view what) {
  return InvalidArgument("TLS: OpenSSL does not take the {}: {}", what, TakeTlsErrors());
}

absl::Status UseCertificate(SSL_CTX* context, const TlsMaterial& material) {
  ASSIGN_OR_RETURN(const std::vector<OwnedX509> chain, ParseCertificates(material.cert_pem));
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1) return Refused("certificate");
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) {
      return Refused("chain of the certificate");
    }
  }
  ASSIGN_OR_RETURN(const OwnedKey key, ParseKey(material.key_pem));
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) return Refused("private key");
  return absl::OkStatus();
}

absl::Status UseAuthorities(SSL_CTX* context, const TlsMaterial& material) {
  ASSIGN_OR_RETURN(const std::vector<OwnedX509> authorities, ParseCertificates(material.ca_pem));
  for (const OwnedX509& authority : authorities) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return Refused("certificate authorities");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> NewContext(const TlsMaterial& material,
                                                    const ReloadingContext::SetRules& set_rules) {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  if (context == nullptr) return Internal("TLS: {}", TakeTlsErrors());
  set_rules(context.get());
  if (!material.cert_pem.empty()) RETURN_IF_ERROR(UseCertificate(context.get(), material));
  if (!material.ca_pem.empty()) RETURN_IF_ERROR(UseAuthorities(context.get(), material));
  return context;
}

}  // namespace

ReloadingContext::ReloadingContext(std::shared_ptr<TlsSource> source, SetRules set_rules,
                                   std::shared_ptr<const TlsMaterial> material,
                                   std::shared_ptr<SSL_CTX> context)
    : source_(std::move(source)),
      set_rules_(std::move(set_rules)),
      material_(std::move(material)),
      context_(std::move(context)) {}

absl::StatusOr<std::unique_ptr<ReloadingContext>> ReloadingContext::Open(const TlsFiles& files,
                                                                         SetRules set_rules,
                                                                         Duration recheck) {
  ASSIGN_OR_RETURN(std::shared_ptr<TlsSource> source, TlsSource::Open(files, recheck));
  std::shared_ptr<const TlsMaterial> material = source->Current();
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = NewContext(*material, set_rules);
  if (!context.ok()) {
    return Annotate(context.status(), fmt::format("\"{}\", \"{}\"", files.cert, files.ca));
  }
  return std::unique_ptr<ReloadingContext>(new ReloadingContext(
      std::move(source), std::move(set_rules), std::move(material), *std::move(context)));
}

std::shared_ptr<SSL_CTX> ReloadingContext::Current() {
  std::shared_ptr<const TlsMaterial> latest = source_->Current();
  absl::MutexLock lock(&mutex_);
  if (latest == material_) return context_;
  material_ = std::move(latest);
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = NewContext(*material_, set_rules_);
  if (context.ok()) {
    context_ = *std::move(context);
  } else {
    LogWarn("changed TLS files cannot be used, the former ones stay in use status=\"{}\"",
            context.status().ToString());
  }
  return context_;
}

}  // namespace tandem
