#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpc/grpc_security.h"
#include "grpcpp/server_context.h"
#include "security/peer_check.h"

namespace tandem {

// Whether clients of a router need a certificate.
enum class ClientCertificates : bool { kOptional, kRequired };

// Says who may call the methods of one gRPC port that uses TLS. It sees every call, those of
// services that are yet to be written included, before any service does. Thread-safe.
class CallGuard {
 public:
  // Workers alone may call the Cluster service of a router. Its other methods, the standard
  // services among them, are for everybody, or with kRequired for clients and admins. `refusals`
  // outlives it.
  static CallGuard ForRouter(ClientCertificates clients, TlsRefusals& refusals);
  // Routers alone may call a worker, its health service included.
  static CallGuard ForWorker(TlsRefusals& refusals);

  // Whether a connection without a certificate is of no use to anybody.
  bool needs_certificates() const { return others_need_.has_identity; }

  // `path` of the method: "/tandem.v1.Worker/Decode". Errors as PeerCheck::Check.
  absl::Status CheckCall(std::string_view path, const PeerCertificate& caller) const;
  // For a message that speaks for the worker of that name: only its own certificate allows that.
  absl::Status CheckWorkerName(const grpc::ServerContextBase& call, const std::string& name,
                               std::string_view what) const;

 private:
  struct Need {
    bool has_identity = false;  // false: everybody may call
    NeededIdentity identity = {};
  };
  CallGuard(Need cluster, Need others, TlsRefusals& refusals);

  Need cluster_needs_;
  Need others_need_;
  PeerCheck check_;
};

// What the caller on a connection of gRPC has shown.
PeerCertificate CallerOf(const grpc_auth_context* context);

}  // namespace tandem
