#include "server/admin/metrics_server.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "base/host_port.h"
#include "base/json.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/admin/exposition.h"
#include "server/admin/http_metrics.h"

namespace tandem {
namespace {

// The most connections to the port of metrics: few clients watch a process, and their requests are
// short.
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

// The pages of a process, with the metrics of `server` added to the page of metrics once it has
// started.
AdminPages WithOwnMetrics(AdminPages pages,
                          std::shared_ptr<const std::atomic<const HttpServer*>> server) {
  pages.metrics = [make = std::move(pages.metrics), server = std::move(server)] {
    std::vector<MetricFamily> families = make();
    if (const HttpServer* const started = *server) {
      for (MetricFamily& family : MetricsPortMetrics(started->use())) {
        families.push_back(std::move(family));
      }
    }
    return families;
  };
  return pages;
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
  const std::string body = JsonText(nlohmann::json{{"version", version}}) + "\n";
  return {GetRoute("/health", Health(pages)), GetRoute("/ping", Health(pages)),
          GetRoute("/version", [body](const HttpRequest&) { return HttpResponse{.body = body}; })};
}

absl::StatusOr<HttpTlsFiles> MetricsTlsFiles(std::string_view use, const TlsFiles& files) {
  if (use == "off") return HttpTlsFiles{};
  if (!files.enabled()) {
    return InvalidArgument("--metrics-tls {}: give --tls-cert, --tls-key and --tls-ca as well",
                           use);
  }
  return HttpTlsFiles{
      .cert = files.cert, .key = files.key, .client_ca = use == "require" ? files.ca : ""};
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartMetricsServer(const std::string& host,
                                                               uint16_t port,
                                                               const AdminPages& pages,
                                                               const HttpTlsFiles& tls,
                                                               TlsRefusals* refusals) {
  // Points to the server once it has started. It is read by the server's handlers, which end before
  // the server.
  const auto started = std::make_shared<std::atomic<const HttpServer*>>(nullptr);
  auto server = HttpServer::Start({.host = host,
                                   .port = port,
                                   .tls = tls,
                                   .tls_refusals = refusals,
                                   .max_connections = kMaxConnections,
                                   .max_body_bytes = 0,
                                   .header_timeout = kHeaderTimeout},
                                  AdminRoutes(WithOwnMetrics(pages, started)));
  if (absl::IsUnavailable(server.status())) {
    return Unavailable("cannot listen on {} for metrics: choose another --metrics-port",
                       HostPortText(host, port));
  }
  if (server.ok()) *started = server->get();
  return server;
}

}  // namespace tandem
