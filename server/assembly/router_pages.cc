#include "server/assembly/router_pages.h"

#include <iterator>
#include <utility>
#include <vector>

#include "server/admin/field_metrics.h"
#include "server/admin/http_metrics.h"
#include "server/admin/metrics_page.h"
#include "server/admin/trace_metrics.h"

namespace tandem {
namespace {

std::vector<MetricFamily> MetricsOf(const RouterPageParts& parts) {
  const v1::GetStatusResponse now = parts.status();
  std::vector<MetricFamily> all = StatusMetrics(now);
  const auto add = [&all](std::vector<MetricFamily> families) {
    std::move(families.begin(), families.end(), std::back_inserter(all));
  };
  add({RequestEnds(parts.requests)});
  add(RouterFieldMetrics(now, parts.requests));
  if (const HttpServer* const server = parts.http) add(HttpMetrics(server->use()));
  if (const auto use = parts.tracing.use()) add(TraceMetrics(*use));
  return all;
}

}  // namespace

AdminPages RouterPages(const RouterPageParts& parts) {
  return {.metrics = [parts] { return MetricsOf(parts); },
          .live = [&health = parts.health] { return health.Live(); },
          .ready = [&health = parts.health] { return health.Ready(); }};
}

}  // namespace tandem
