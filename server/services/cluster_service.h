#pragma once

#include "router/cluster/cluster.h"
#include "tandem/v1/cluster.grpc.pb.h"

namespace tandem {

// Where workers join a router's cluster. Each call is a short look under the cluster's lock.
class ClusterService final : public v1::Cluster::CallbackService {
 public:
  explicit ClusterService(Cluster& cluster) : cluster_(cluster) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Deregister(grpc::CallbackServerContext* context,
                                       const v1::DeregisterRequest* request,
                                       v1::DeregisterResponse* response) override;

 private:
  Cluster& cluster_;
};

}  // namespace tandem
