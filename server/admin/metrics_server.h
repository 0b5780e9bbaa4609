#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/http_server.h"

namespace tandem {

// What whoever watches a process may ask for.
struct AdminPages {
  std::function<std::string()> metrics;  // the page of /metrics, made for each call
  std::function<bool()> is_ready;        // for /healthz
};

// GET /metrics, and GET /healthz, which answers 200 while the process is ready and else 503. The pages are
// made on I/O threads of the HTTP server.
std::vector<HttpRoute> AdminRoutes(const AdminPages& pages);

// GET /health and /ping answer as /healthz, /version names the version in JSON: what load balancers and
// clients of OpenAI's API ask for.
std::vector<HttpRoute> HealthRoutes(const AdminPages& pages, const std::string& version);

// A port of its own for these pages. UNAVAILABLE names the address.
absl::StatusOr<std::unique_ptr<HttpServer>> StartMetricsServer(const std::string& host,
                                                               uint16_t port,
                                                               const AdminPages& pages);

}  // namespace tandem
