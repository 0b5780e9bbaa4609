#include "security/grpc/server_tls.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/support/slice.h"

namespace tandem {
namespace {

// What gRPC calls back with, for as long as its credentials live.
struct ServerTlsState {
  std::shared_ptr<TlsSource> source;
  const CallGuard& guard;
  absl::Mutex mutex;
  std::shared_ptr<const TlsMaterial> material ABSL_GUARDED_BY(mutex);  // that gRPC has
};

// Called before each handshake.
grpc_ssl_certificate_config_reload_status FetchCertificate(
    void* user_data, grpc_ssl_server_certificate_config** config) {
  auto& state = *static_cast<ServerTlsState*>(user_data);
  std::shared_ptr<const TlsMaterial> latest = state.source->Current();
  absl::MutexLock lock(&state.mutex);
  if (latest == state.material) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  state.material = std::move(latest);
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = state.material->key_pem.c_str(),
                                           .cert_chain = state.material->cert_pem.c_str()};
  *config = grpc_ssl_server_certificate_config_create(state.material->ca_pem.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::string_view PathIn(const grpc_metadata* metadata, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (grpc::StringRefFromSlice(&metadata[i].key) == ":path") {
      const grpc::string_ref path = grpc::StringRefFromSlice(&metadata[i].value);
      return {path.data(), path.size()};
    }
  }
  return {};
}

// Called for each call before its service is.
void JudgeCall(void* user_data, grpc_auth_context* context, const grpc_metadata* metadata,
               size_t count, grpc_process_auth_metadata_done_cb done, void* done_data) {
  const auto& state = *static_cast<const ServerTlsState*>(user_data);
  const absl::Status status = state.guard.CheckCall(PathIn(metadata, count), CallerOf(context));
  const std::string message(status.message());
  done(done_data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.raw_code()),
       status.ok() ? nullptr : message.c_str());
}

void DeleteState(void* user_data) { delete static_cast<ServerTlsState*>(user_data); }

class ServerTls final : public grpc::ServerCredentials {
 public:
  ServerTls(std::shared_ptr<TlsSource> source, const CallGuard& guard) {
    auto* state = new ServerTlsState{.source = std::move(source), .guard = guard};
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            guard.needs_certificates() ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                       : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY,
            &FetchCertificate, state));
    TANDEM_CHECK(credentials_ != nullptr, "TLS credentials of gRPC");
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {.process = &JudgeCall, .destroy = &DeleteState, .state = state});
  }
  ~ServerTls() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    TANDEM_CHECK(false, "the guard judges calls, and nothing else can besides");
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> NewServerTls(std::shared_ptr<TlsSource> source,
                                                      const CallGuard& guard) {
  return std::make_shared<ServerTls>(std::move(source), guard);
}

}  // namespace tandem
