#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/tls_files.h"
#include "security/tls_refusals.h"
#include "server/admin/health.h"
#include "server/admin/metric_family.h"
#include "server/http/http_server.h"

namespace tandem {

// The contents of a process's pages for monitoring. Each function is called for each request, on an
// I/O thread of the HTTP server.
struct AdminPages {
  std::function<std::vector<MetricFamily>()> metrics;
  std::function<HealthReport()> live;
  std::function<HealthReport()> ready;
};

// GET /metrics, in the format that the client prefers (exposition.h); /livez and /readyz with the
// checks in their bodies; /healthz, which answers 200 while the process is ready and else 503.
std::vector<HttpRoute> AdminRoutes(const AdminPages& pages);

// The routes GET /health and /ping, which answer as /healthz, and /version, which names the version
// in JSON: load balancers and clients of OpenAI's API call these.
std::vector<HttpRoute> HealthRoutes(const AdminPages& pages, const std::string& version);

// The TLS files for the port of metrics, as the value `use` of --metrics-tls says: "off" uses none,
// "on" the certificate among `files`, "require" also demands the certificate of a client or an
// admin from clients. INVALID_ARGUMENT where `files` has no certificate.
absl::StatusOr<HttpTlsFiles> MetricsTlsFiles(std::string_view use, const TlsFiles& files);

// Opens a port of its own for the pages. `refusals`, if not null, counts the connections that TLS
// refuses, and outlives the server. UNAVAILABLE names the address, INVALID_ARGUMENT a file.
absl::StatusOr<std::unique_ptr<HttpServer>> StartMetricsServer(const std::string& host,
                                                               uint16_t port,
                                                               const AdminPages& pages,
                                                               const HttpTlsFiles& tls = {},
                                                               TlsRefusals* refusals = nullptr);

}  // namespace tandem
