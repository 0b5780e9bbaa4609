#include "server/admin/metrics_server.h"

#include <chrono>
#include <utility>

#include "base/host_port.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/admin/exposition.h"

namespace tandem {
namespace {

// Few watch a process, and their requests are short.
constexpr int kMaxConnections = 64;
constexpr std::chrono::seconds kHeaderTimeout(2);

HttpRoute GetRoute(const char* path, std::function<HttpResponse(const HttpRequest&)> make) {
  return {.method = "GET",
          .path = path,
          .handler = [make = std::move(make)](const std::shared_ptr<HttpExchange>& exchange) {
            exchange->Respond(make(exchange->request()));
          }};
}

HttpResponse MetricsResponse(const std::vector<MetricFamily>& families,
                             const HttpRequest& request) {
  const ExpositionFormat format = FormatFor(request.Header("Accept"));
  return {.body = Expose(families, format), .content_type = std::string(ContentType(format))};
}

std::function<HttpResponse(const HttpRequest&)> Health(const AdminPages& pages) {
  return [ready = pages.ready](const HttpRequest&) {
    const bool ok = ready().ok();
    return HttpResponse{.status = ok ? 200 : 503,
                        .body = ok ? "ready\n" : "not ready\n",
                        .content_type = "text/plain"};
  };
}

}  // namespace

std::vector<HttpRoute> AdminRoutes(const AdminPages& pages) {
  return {GetRoute("/metrics",
                   [make = pages.metrics](const HttpRequest& request) {
                     return MetricsResponse(make(), request);
                   }),
          GetRoute("/livez",
                   [live = pages.live](const HttpRequest&) { return HealthResponse(live()); }),
          GetRoute("/readyz",
                   [ready = pages.ready](const HttpRequest&) { return HealthResponse(ready()); }),
          GetRoute("/healthz", Health(pages))};
}

std::vector<HttpRoute> HealthRoutes(const AdminPages& pages, const std::string& version) {
  const std::string body = nlohmann::json{{"version", version}}.dump() + "\n";
  return {GetRoute("/health", Health(pages)), GetRoute("/ping", Health(pages)),
          GetRoute("/version", [body](const HttpRequest&) { return HttpResponse{.body = body}; })};
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartMetricsServer(const std::string& host,
                                                               uint16_t port,
                                                               const AdminPages& pages) {
  auto server = HttpServer::Start({.host = host,
                                   .port = port,
                                   .max_connections = kMaxConnections,
                                   .max_body_bytes = 0,
                                   .header_timeout = kHeaderTimeout},
                                  AdminRoutes(pages));
  if (absl::IsUnavailable(server.status())) {
    return Unavailable("cannot listen on {} for metrics: choose another --metrics-port",
                       HostPortText(host, port));
  }
  return server;
}

}  // namespace tandem
