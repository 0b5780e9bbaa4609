#include "server/services/cluster_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "router/cluster/registration_check.h"
#include "server/services/status_mapping.h"

namespace tandem {
namespace {

int64_t Millis(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// Tells a prefill worker to which decode workers it may send KV; other workers get nothing.
void FillKvPeers(const ClusterView& view, const WorkerId& id, v1::HeartbeatResponse& response) {
  const auto asking = std::ranges::find(view.workers, id, &WorkerView::id);
  if (asking == view.workers.end() || asking->role != v1::WORKER_ROLE_PREFILL) return;
  for (v1::KvPeer& peer : view.KvPeersOf(*asking)) *response.add_kv_peers() = std::move(peer);
}

}  // namespace

ClusterService::ClusterService(Cluster& cluster, PrefixIndex* prefixes, uint32_t most_cache_changes,
                               const CallGuard* guard, HeaderLimit* headers)
    : cluster_(cluster),
      prefixes_(prefixes),
      most_cache_changes_(most_cache_changes),
      guard_(guard),
      headers_(headers) {}

ClusterService::~ClusterService() = default;

template <typename Request>
absl::Status ClusterService::CheckCaller(const grpc::CallbackServerContext& context,
                                         const Request& request, std::string_view method) const {
  if (headers_ != nullptr) RETURN_IF_ERROR(headers_->Check(context));
  if (guard_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckName("name", request.name()));  // errors and logs quote it
  return guard_->CheckWorkerName(context, request.name(), method);
}

grpc::ServerUnaryReactor* ClusterService::Register(grpc::CallbackServerContext* context,
                                                   const v1::RegisterRequest* request,
                                                   v1::RegisterResponse* response) {
  absl::Status status = CheckCaller(*context, *request, "Register");
  if (status.ok()) status = cluster_.Register(*request);
  if (status.ok()) {
    response->set_lease_ms(Millis(cluster_.options().lease));
    response->set_heartbeat_ms(Millis(cluster_.options().heartbeat));
    LogInfo("worker={} joined role={} address={} pid={}", request->name(), Name(request->role()),
            request->address(), request->pid());
  } else {
    ++refused_registrations_;
    const bool may_be_logged = CheckName("name", request->name()).ok();
    LogWarn("worker={} refused status=\"{}\"", may_be_logged ? request->name() : "(no valid name)",
            status.ToString());
  }
  return Answer(*context, status);
}

grpc::ServerUnaryReactor* ClusterService::Heartbeat(grpc::CallbackServerContext* context,
                                                    const v1::HeartbeatRequest* request,
                                                    v1::HeartbeatResponse* response) {
  absl::Status status = CheckCaller(*context, *request, "Heartbeat");
  if (status.ok() && request->has_cache()) {
    status = PrefixIndex::Check(request->cache(), most_cache_changes_);
  }
  if (status.ok()) status = cluster_.Heartbeat(*request);
  if (status.ok()) {
    FillKvPeers(*cluster_.View(), {request->name(), request->incarnation()}, *response);
    TakeCacheChanges(*request, *response);
  } else {
    ++refused_heartbeats_;
  }
  return Answer(*context, status);
}

void ClusterService::TakeCacheChanges(const v1::HeartbeatRequest& request,
                                      v1::HeartbeatResponse& response) {
  if (prefixes_ == nullptr) return;
  const WorkerId id{request.name(), request.incarnation()};
  response.set_most_cache_changes(most_cache_changes_);
  response.set_cache_sequence(request.has_cache() ? prefixes_->Apply(id, request.cache())
                                                  : prefixes_->Latest(id));
}

grpc::ServerUnaryReactor* ClusterService::Deregister(grpc::CallbackServerContext* context,
                                                     const v1::DeregisterRequest* request,
                                                     v1::DeregisterResponse*) {
  const absl::Status status = CheckCaller(*context, *request, "Deregister");
  if (status.ok() && cluster_.Deregister(request->name(), request->incarnation())) {
    LogInfo("worker={} leaves", request->name());
  }
  return Answer(*context, status);
}

v1::ClusterCallUse ClusterService::use() const {
  v1::ClusterCallUse use;
  use.set_refused_registrations(refused_registrations_);
  use.set_refused_heartbeats(refused_heartbeats_);
  return use;
}

}  // namespace tandem
