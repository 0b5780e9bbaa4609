#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/services/server_limits.h"

namespace grpc {
class Server;
class ServerCredentials;
class Service;
}  // namespace grpc

namespace tandem {

class ConnectionAcceptor;
class TlsRefusals;

// A service and its name, such as "tandem.v1.Inference", which the health service knows it by.
struct NamedService {
  std::string name;
  grpc::Service* service = nullptr;  // outlives the server
};

struct GrpcServerOptions {
  ServerLimits limits;
  int32_t max_message_bytes = 4 << 20;  // of one request; larger ones get RESOURCE_EXHAUSTED
  std::vector<NamedService> services;
  std::shared_ptr<grpc::ServerCredentials> credentials;  // made by NewServerTls; null: no TLS
  // Counts the handshakes that fail at the servers of this process; null: they are not counted.
  std::shared_ptr<TlsRefusals> tls_refusals;
};

// A gRPC server with the standard health and reflection services, on the port of a
// ConnectionAcceptor.
class GrpcServer {
 public:
  // Starts `acceptor`, which must outlive the server. INTERNAL when gRPC cannot serve.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(ConnectionAcceptor& acceptor,
                                                           const GrpcServerOptions& options);
  ~GrpcServer();

  // What the health service answers from now on: for the empty name and every service, or for one
  // service. Thread-safe.
  enum class Health : bool { kNotServing, kServing };
  void SetHealth(Health health);
  void SetHealth(const std::string& service, Health health);
  // Takes no new connections and calls, waits for those in progress until `deadline`, then cancels
  // them.
  void Shutdown(TimePoint deadline);

 private:
  GrpcServer(ConnectionAcceptor& acceptor, std::unique_ptr<grpc::Server> server);

  ConnectionAcceptor& acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem
