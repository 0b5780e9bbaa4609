#include "server/admin/metrics_server.h"

#include <chrono>
#include <utility>

#include "base/host_port.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

// Few watch a process, and each has little to say.
constexpr int kMaxConnections = 64;
constexpr std::chrono::seconds kHeaderTimeout(2);

HttpResponse Text(int status, std::string text) {
  return {.status = status, .body = std::move(text), .content_type = "text/plain; version=0.0.4"};
}

HttpRoute GetRoute(const char* path, std::function<HttpResponse()> make) {
  return {.method = "GET",
          .path = path,
          .handler = [make = std::move(make)](const std::shared_ptr<HttpExchange>& exchange) {
            exchange->Respond(make());
          }};
}

std::function<HttpResponse()> Health(const AdminPages& pages) {
  return [is_ready = pages.is_ready] {
    return is_ready() ? Text(200, "ready\n") : Text(503, "not ready\n");
  };
}

}  // namespace

std::vector<HttpRoute> AdminRoutes(const AdminPages& pages) {
  return {GetRoute("/metrics", [make = pages.metrics] { return Text(200, make()); }),
          GetRoute("/healthz", Health(pages))};
}

std::vector<HttpRoute> HealthRoutes(const AdminPages& pages, const std::string& version) {
  const std::string body = nlohmann::json{{"version", version}}.dump() + "\n";
  return {GetRoute("/health", Health(pages)), GetRoute("/ping", Health(pages)),
          GetRoute("/version", [body] { return HttpResponse{.body = body}; })};
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
