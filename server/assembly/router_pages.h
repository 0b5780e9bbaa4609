#pragma once

#include <atomic>
#include <functional>

#include "router/request/request_metrics.h"
#include "server/admin/metrics_server.h"
#include "server/admin/router_health.h"
#include "server/http/http_server.h"
#include "server/tracing/process_tracing.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// What the pages of a router's admin port are made from; thread-safe. All references outlive the
// servers.
struct RouterPageParts {
  std::function<v1::GetStatusResponse()> status;
  const RequestMetrics& requests;
  const ProcessTracing& tracing;
  const RouterHealth& health;
  const std::atomic<const HttpServer*>& http;  // its use is reported; null until it starts
};

AdminPages RouterPages(const RouterPageParts& parts);

}  // namespace tandem
