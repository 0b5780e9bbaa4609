#include "security/grpc/channel_tls.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace tandem {
namespace {

namespace experimental = grpc::experimental;

// Asked after TLS has verified the chain of the server's certificate. Addresses are not compared:
// workers come and go at any.
class ServerIdentityVerifier final : public experimental::ExternalCertificateVerifier {
 public:
  explicit ServerIdentityVerifier(NeededIdentity server) : server_(std::move(server)) {}

  bool Verify(experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* sync_status) override {
    PeerCertificate peer = {.shown = true};
    const grpc::string_ref name = request->common_name();
    peer.subject = "CN=" + std::string(name.data(), name.size());
    for (const grpc::string_ref& uri : request->uri_names()) {
      peer.uris.emplace_back(uri.data(), uri.size());
    }
    const grpc::string_ref target = request->target_name();
    const absl::Status status =
        PeerCheck(TlsPort::kGrpc, nullptr)
            .Check(peer, server_, "the server " + std::string(target.data(), target.size()));
    *sync_status = grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                                std::string(status.message()));
    return true;  // done
  }
  void Cancel(experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const NeededIdentity server_;
};

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> NewChannelCredentials(const TlsMaterial* material,
                                                                const NeededIdentity& server) {
  if (material == nullptr) return grpc::InsecureChannelCredentials();
  std::vector<experimental::IdentityKeyCertPair> own;
  if (!material->cert_pem.empty()) {
    own.push_back({.private_key = material->key_pem, .certificate_chain = material->cert_pem});
  }
  experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<experimental::StaticDataCertificateProvider>(material->ca_pem, own));
  options.watch_root_certs();
  if (!own.empty()) options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(
      experimental::ExternalCertificateVerifier::Create<ServerIdentityVerifier>(server));
  // The verifier stands for all that a comparison of host names would.
  options.set_check_call_host(false);
  return experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(const TlsFiles& files) {
  RETURN_IF_ERROR(files.CheckClient());
  if (!files.enabled_for_client()) return NewChannelCredentials(nullptr, {});
  ASSIGN_OR_RETURN(const TlsMaterial material, LoadTlsMaterial(files));
  return NewChannelCredentials(&material, {.roles = {IdentityRole::kRouter}});
}

}  // namespace tandem
