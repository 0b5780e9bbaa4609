#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "router/cluster/cluster.h"
#include "router/prefix/prefix_index.h"
#include "security/grpc/call_guard.h"
#include "server/services/header_limit.h"
#include "tandem/v1/cluster.grpc.pb.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// The service with which workers join a router's cluster and report what they have cached. Each
// call takes the locks of the cluster and of the prefix index only for a moment.
class ClusterService final : public v1::Cluster::CallbackService {
 public:
  // `prefixes`: null where the router does not use reports of what is cached. `most_cache_changes`:
  // how many changes one heartbeat may report. `guard`: checks that a caller is the worker that it
  // names; null without TLS, where that cannot be checked. `headers`: limits the headers of a call;
  // null: no limit. All outlive this. Constructor and destructor are defined in the .cc file,
  // because gRPC's templates take long to compile.
  ClusterService(Cluster& cluster, PrefixIndex* prefixes, uint32_t most_cache_changes,
                 const CallGuard* guard = nullptr, HeaderLimit* headers = nullptr);
  ~ClusterService() override;

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Deregister(grpc::CallbackServerContext* context,
                                       const v1::DeregisterRequest* request,
                                       v1::DeregisterResponse* response) override;

  // Counts of the calls that were refused so far. Thread-safe.
  v1::ClusterCallUse use() const;

 private:
  // Whether the caller may speak for the worker that `request` names.
  template <typename Request>
  absl::Status CheckCaller(const grpc::CallbackServerContext& context, const Request& request,
                           std::string_view method) const;
  void TakeCacheChanges(const v1::HeartbeatRequest& request, v1::HeartbeatResponse& response);

  Cluster& cluster_;
  PrefixIndex* const prefixes_;
  const uint32_t most_cache_changes_;
  const CallGuard* const guard_;
  HeaderLimit* const headers_;
  std::atomic<uint64_t> refused_registrations_ = 0;
  std::atomic<uint64_t> refused_heartbeats_ = 0;
};

}  // namespace tandem
