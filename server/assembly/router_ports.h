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

// The parts that a router's ports serve, and the options to serve them with.
struct RouterPortParts {
  const RouterProcessOptions& options;
  Router& router;
  EventLoop& loop;
  Cluster& cluster;
  const Clock& clock;
  const RequestMetrics& requests;
  const ProcessTracing& tracing;
  const openai::Service& service;
  AnswerBuffers& answers;  // the buffers of answers whose bytes `router` counts
  const ProcessTls& tls;
  const RouteProofs& proofs;
  PrefixIndex* prefixes;  // null where prefix hits are not predicted
  AccessControl* access;  // null where no API keys are required
};

// The ports by which clients and workers reach a router: the gRPC port, and those of HTTP and of
// metrics where they were asked for. Thread-safe after Open.
class RouterPorts {
 public:
  // Opens the ports. All parts must outlive them. Errors name the flag or the address at fault.
  static absl::StatusOr<std::unique_ptr<RouterPorts>> Open(const RouterPortParts& parts);
  ~RouterPorts();

  std::string address() const;  // address of the gRPC port, host:port
  // Makes all health checks fail from now on, because no more requests are taken.
  void SetDraining();
  // Lets pending answers be written until `end`, then closes all connections.
  void Close(TimePoint end);

 private:
  explicit RouterPorts(const RouterPortParts& parts)
      : parts_(parts), headers_(parts.options.server.max_metadata_bytes) {}
  void AddProcess(v1::GetStatusResponse& status) const;
  v1::GetStatusResponse Status() const;  // status of the router and of its process
  absl::Status OpenGrpc();
  void StartCanary();
  void WatchHealth();
  AdminPages Pages() const;
  std::vector<HttpRoute> ExplainingRoutes();
  HttpServerOptions HttpOptions(std::set<std::string> open_paths) const;
  absl::Status OpenHttp(const AdminPages& pages);
  absl::Status OpenMetrics(const AdminPages& pages);

  // Members are constructed in this order and destroyed in reverse.
  const RouterPortParts parts_;
  std::unique_ptr<Canary> canary_;  // null where no canary requests were asked for
  HeaderLimit headers_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<InferenceService> inference_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<RouterHealth> health_;
  std::unique_ptr<StatusPage> status_page_;            // null without an HTTP port
  std::atomic<const HttpServer*> http_use_ = nullptr;  // points to http_ once it has started
  std::unique_ptr<HttpServer> http_;                   // null where no HTTP port was asked for
  std::unique_ptr<HttpServer> metrics_;                // null where no metrics port was asked for
};

}  // namespace tandem
