#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "router/attempt/route_proofs.h"
#include "router/cluster/cluster.h"
#include "router/event_loop.h"
#include "router/prefix/prefix_index.h"
#include "router/request/answer_buffers.h"
#include "router/request/request_metrics.h"
#include "router/router.h"
#include "server/access/access_control.h"
#include "server/admin/canary.h"
#include "server/admin/metrics_server.h"
#include "server/admin/router_health.h"
#include "server/admin/status_page.h"
#include "server/assembly/process_tls.h"
#include "server/assembly/router_process_options.h"
#include "server/http/http_server.h"
#include "server/openai/service.h"
#include "server/services/cluster_service.h"
#include "server/services/connection_acceptor.h"
#include "server/services/grpc_server.h"
#include "server/services/header_limit.h"
#include "server/services/inference_service.h"
#include "server/tracing/process_tracing.h"

namespace tandem {

// What the ports of a router serve, and with what.
struct RouterPortParts {
  const RouterProcessOptions& options;
  Router& router;
  EventLoop& loop;
  Cluster& cluster;
  const Clock& clock;
  const RequestMetrics& requests;
  const ProcessTracing& tracing;
  const openai::Service& service;
  AnswerBuffers& answers;  // of the answers that `router` counts
  const ProcessTls& tls;
  const RouteProofs& proofs;
  PrefixIndex* prefixes;  // null where no prefix hits are predicted
  AccessControl* access;  // null: no API keys are asked for
};

// Where clients and workers reach a router: the gRPC port, and those of HTTP and of metrics where they
// were asked for. Thread-safe after Open.
class RouterPorts {
 public:
  // All parts outlive it. Errors name the flag or the address at fault.
  static absl::StatusOr<std::unique_ptr<RouterPorts>> Open(const RouterPortParts& parts);
  ~RouterPorts();

  std::string address() const;  // of gRPC, host:port
  // Says by all health checks that no more requests are taken.
  void SetDraining();
  // Lets what was answered be written until `end`, then closes all connections.
  void Close(TimePoint end);

 private:
  explicit RouterPorts(const RouterPortParts& parts)
      : parts_(parts), headers_(parts.options.server.max_metadata_bytes) {}
  void AddProcess(v1::GetStatusResponse& status) const;
  v1::GetStatusResponse Status() const;  // of router and process
  absl::Status OpenGrpc();
  void StartCanary();
  void WatchHealth();
  AdminPages Pages() const;
  std::vector<HttpRoute> ExplainingRoutes();
  HttpServerOptions HttpOptions(std::set<std::string> open_paths) const;
  absl::Status OpenHttp(const AdminPages& pages);
  absl::Status OpenMetrics(const AdminPages& pages);

  // Constructed in this order and destroyed in reverse.
  const RouterPortParts parts_;
  std::unique_ptr<Canary> canary_;  // null where none was asked for
  HeaderLimit headers_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<InferenceService> inference_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<RouterHealth> health_;
  std::unique_ptr<StatusPage> status_page_;            // null without http_
  std::atomic<const HttpServer*> http_use_ = nullptr;  // of http_, once it has started
  std::unique_ptr<HttpServer> http_;                   // null where none was asked for
  std::unique_ptr<HttpServer> metrics_;                // likewise
};

}  // namespace tandem
