#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace tandem {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;                     // 0: the system chooses
  int32_t max_message_bytes = 4 << 20;   // of one request; larger ones get RESOURCE_EXHAUSTED
  std::vector<grpc::Service*> services;  // outlive the server
};

// A listening gRPC server with the standard health and reflection services.
class GrpcServer {
 public:
  // UNAVAILABLE with the address when it cannot listen there.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options);
  ~GrpcServer();

  uint16_t port() const { return port_; }
  // What the health service answers from now on.
  enum class Health : bool { kNotServing, kServing };
  void SetHealth(Health health);
  // Takes no new calls, waits for those in progress until `deadline`, then cancels them.
  void Shutdown(TimePoint deadline);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, uint16_t port);

  std::unique_ptr<grpc::Server> server_;
  const uint16_t port_;
};

}  // namespace tandem
