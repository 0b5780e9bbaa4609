#include "server/assembly/router_ports.h"

#include <chrono>
#include <utility>

#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "server/access/http_access.h"
#include "server/admin/explain_page.h"
#include "server/anthropic/endpoints.h"
#include "server/assembly/router_options.h"
#include "server/assembly/router_pages.h"
#include "server/page/page_routes.h"
#include "server/services/message_limit.h"

namespace tandem {
namespace {

constexpr const char* kInferenceName = v1::Inference::service_full_name();

// The TLS files of the HTTP port: its own, or else those of all ports.
HttpTlsFiles HttpFiles(const RouterProcessOptions& options) {
  HttpTlsFiles files = options.http.tls;
  if (files.cert.empty() && files.key.empty()) {
    files.cert = options.tls.cert;
    files.key = options.tls.key;
  }
  if (options.require_client_certificates) files.client_ca = options.tls.ca;
  return files;
}

v1::HttpUse ToMessage(const HttpUse& use) {
  v1::HttpUse message;
  message.set_open(use.open);
  message.set_limit(use.limit);
  message.set_requests(use.requests);
  message.set_refused(use.refused);
  message.set_evicted(use.evicted);
  return message;
}

void Append(std::vector<HttpRoute> more, std::vector<HttpRoute>& routes) {
  for (HttpRoute& route : more) routes.push_back(std::move(route));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RouterPorts>> RouterPorts::Open(const RouterPortParts& parts) {
  std::unique_ptr<RouterPorts> ports(new RouterPorts(parts));
  ports->StartCanary();  // before clients can ask for the status, which reports the canary
  RETURN_IF_ERROR(ports->OpenGrpc());
  ports->WatchHealth();
  const AdminPages pages = ports->Pages();
  RETURN_IF_ERROR(ports->OpenHttp(pages));
  RETURN_IF_ERROR(ports->OpenMetrics(pages));
  return ports;
}

RouterPorts::~RouterPorts() {
  // A status request over gRPC reads http_, so the gRPC server is shut down first.
  if (server_ != nullptr) server_->Shutdown(std::chrono::steady_clock::now());
}

std::string RouterPorts::address() const {
  return HostPortText(parts_.options.host, acceptor_->port());
}

// Adds to the router's status what only the process knows: use of its ports, TLS refusals, log,
// canary.
void RouterPorts::AddProcess(v1::GetStatusResponse& status) const {
  if (parts_.access != nullptr) *status.mutable_access() = parts_.access->Use();
  *status.mutable_connections() = acceptor_->use();
  if (const HttpServer* const http = http_use_) *status.mutable_http() = ToMessage(http->use());
  status.set_large_headers_refused(headers_.refused());
  *status.mutable_cluster_calls() = cluster_service_->use();
  parts_.tls.Report(*status.mutable_tls_refusals());
  status.set_log_lines_dropped(LogLinesDropped());
  if (canary_ != nullptr) canary_->Report(status);
}

v1::GetStatusResponse RouterPorts::Status() const {
  v1::GetStatusResponse status = parts_.router.Status();
  AddProcess(status);
  return status;
}

absl::Status RouterPorts::OpenGrpc() {
  const RouterProcessOptions& options = parts_.options;
  const RouterTuning& tuning = options.tuning;
  ASSIGN_OR_RETURN(acceptor_,
                   ConnectionAcceptor::Listen(options.host, options.port, options.server));
  cluster_service_ =
      std::make_unique<ClusterService>(parts_.cluster, parts_.prefixes, MostCacheChanges(tuning),
                                       parts_.tls.guard_or_null(), &headers_);
  inference_ = std::make_unique<InferenceService>(
      parts_.router, parts_.loop, parts_.answers,
      InferenceServiceOptions{
          .max_message_bytes = tuning.max_message_bytes,
          .max_queued_bytes = tuning.stream_buffer_bytes,
          .max_reading_time = std::chrono::seconds(tuning.max_request_seconds),
          .access = parts_.access,
          .headers = &headers_,
          .add_process = [this](v1::GetStatusResponse& status) { AddProcess(status); }});
  ASSIGN_OR_RETURN(
      server_,
      GrpcServer::Start(
          *acceptor_,
          {.limits = options.server,
           // Larger than the router's own limit, so that the router itself can refuse a message and
           // say why.
           .max_message_bytes = static_cast<int32_t>(kGrpcLimitFactor * tuning.max_message_bytes),
           .services = {{kInferenceName, inference_.get()},
                        {v1::Cluster::service_full_name(), cluster_service_.get()}},
           .credentials = parts_.tls.Credentials(),
           .tls_refusals = parts_.tls.CountedRefusals()}));
  server_->SetHealth(kInferenceName, GrpcServer::Health::kNotServing);  // until there is a route
  return absl::OkStatus();
}

void RouterPorts::StartCanary() {
  const int seconds = parts_.options.tuning.canary_seconds;
  if (seconds == 0) return;
  canary_ = std::make_unique<Canary>(
      Canary::Parts{.submit =
                        [&router = parts_.router](v1::GenerateRequest request, TimePoint deadline,
                                                  ResponseStream& stream) {
                          return router.Submit(std::move(request), deadline, stream);
                        },
                    .loop = parts_.loop,
                    .cluster = parts_.cluster,
                    .proofs = parts_.proofs,
                    .clock = parts_.clock,
                    .interval = std::chrono::seconds(seconds)});
  canary_->Start();
}

void RouterPorts::WatchHealth() {
  const auto changed = [this](bool ready) {
    server_->SetHealth(kInferenceName,
                       ready ? GrpcServer::Health::kServing : GrpcServer::Health::kNotServing);
  };
  health_ = std::make_unique<RouterHealth>(
      RouterHealth::Parts{.loop = parts_.loop,
                          .cluster = parts_.cluster,
                          .clock = parts_.clock,
                          .connections = [this] { return acceptor_->use(); },
                          .changed = changed,
                          .canary = canary_.get()});
}

AdminPages RouterPorts::Pages() const {
  return RouterPages({.status = [this] { return Status(); },
                      .requests = parts_.requests,
                      .tracing = parts_.tracing,
                      .health = *health_,
                      .http = http_use_});
}

// The HTTP routes that show requests of all tenants.
std::vector<HttpRoute> RouterPorts::ExplainingRoutes() {
  const auto explain = [&router = parts_.router](v1::ExplainRequest request, Explained done) {
    router.Explain(std::move(request), std::move(done));
  };
  status_page_ = std::make_unique<StatusPage>(StatusPage::Parts{
      .status = [this] { return Status(); }, .explain = explain, .clock = parts_.clock});
  return {ExplainRoute(explain), status_page_->Route()};
}

HttpServerOptions RouterPorts::HttpOptions(std::set<std::string> open_paths) const {
  const RouterProcessOptions& options = parts_.options;
  HttpServerOptions made = {
      .host = options.host,
      .port = *options.http_port,
      .tls = HttpFiles(options),
      .tls_refusals = parts_.tls.refusals.get(),
      .io_threads = options.http.threads,
      .max_connections = options.server.max_connections,
      .max_body_bytes = options.http.max_body_bytes,
      .max_total_body_bytes = options.http.max_total_body_bytes,
      .idle_timeout = std::chrono::seconds(options.http.idle_seconds),
      .max_queued_bytes = options.tuning.stream_buffer_bytes,
      .max_reading_time = std::chrono::seconds(options.tuning.max_request_seconds),
      .answers = &parts_.answers};
  if (parts_.access != nullptr) {
    made.authorize = HttpAuthorizer(*parts_.access, std::move(open_paths));
  }
  return made;
}

absl::Status RouterPorts::OpenHttp(const AdminPages& pages) {
  const RouterProcessOptions& options = parts_.options;
  if (!options.http_port) return absl::OkStatus();
  const openai::Service& service = parts_.service;
  std::vector<HttpRoute> routes = AdminRoutes(pages);
  Append(service.Routes(), routes);
  Append(anthropic::Routes(service.parts()), routes);
  Append(ExplainingRoutes(), routes);
  // The routes that are served without an API key.
  std::vector<HttpRoute> open = HealthRoutes(pages, options.build);
  if (!options.http.no_page) Append(PageRoutes(service.model(), routes), open);
  std::set<std::string> open_paths = {"/healthz", "/livez", "/readyz"};
  for (const HttpRoute& route : open) open_paths.insert(route.path);
  Append(std::move(open), routes);
  const HttpServerOptions http_options = HttpOptions(std::move(open_paths));
  auto server = HttpServer::Start(http_options, std::move(routes));
  if (absl::IsUnavailable(server.status())) {
    return Unavailable("choose another --http-port: {}", std::string(server.status().message()));
  }
  ASSIGN_OR_RETURN(http_, std::move(server));
  http_use_ = http_.get();
  LogInfo("http at={}://{}", http_options.tls.cert.empty() ? "http" : "https",
          HostPortText(options.host, http_->port()));
  return absl::OkStatus();
}

absl::Status RouterPorts::OpenMetrics(const AdminPages& pages) {
  const RouterProcessOptions& options = parts_.options;
  if (!options.metrics_port) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HttpTlsFiles files, MetricsTlsFiles(options.metrics_tls, options.tls));
  ASSIGN_OR_RETURN(metrics_, StartMetricsServer(options.host, *options.metrics_port, pages, files,
                                                parts_.tls.refusals.get()));
  LogInfo("metrics at={}://{}/metrics", files.cert.empty() ? "http" : "https",
          HostPortText(options.host, metrics_->port()));
  return absl::OkStatus();
}

void RouterPorts::SetDraining() {
  health_->SetDraining();
  server_->SetHealth(GrpcServer::Health::kNotServing);
}

void RouterPorts::Close(TimePoint end) {
  if (http_ != nullptr) http_->Drain(end);
  server_->Shutdown(end);
}

}  // namespace tandem
