#include "server/admin/http_metrics.h"

#include <string>
#include <string_view>

namespace tandem {
namespace {

struct HttpMetric {
  std::string_view name;
  std::string_view help;
  double (*value)(const HttpUse& use);
};

template <auto Field>
double Of(const HttpUse& use) {
  return static_cast<double>(use.*Field);
}

constexpr HttpMetric kHttpMetrics[] = {
    {"tandem_http_connections", "Open connections to the HTTP port", Of<&HttpUse::open>},
    {"tandem_http_connections_limit", "Beyond it, waiting connections are closed",
     Of<&HttpUse::limit>},
    {"tandem_http_requests_total", "Requests that came whole", Of<&HttpUse::requests>},
    {"tandem_http_connections_refused_total",
     "Connections closed at once, because all others were being answered", Of<&HttpUse::refused>},
    {"tandem_http_connections_evicted_total",
     "Connections that waited for a request and were closed to make room", Of<&HttpUse::evicted>},
};

}  // namespace

std::vector<MetricFamily> HttpMetrics(const HttpUse& use) {
  std::vector<MetricFamily> families;
  for (const HttpMetric& metric : kHttpMetrics) {
    const bool counts = metric.name.ends_with("_total");
    families.push_back({.name = std::string(metric.name),
                        .help = std::string(metric.help),
                        .kind = counts ? MetricKind::kCounter : MetricKind::kGauge,
                        .samples = {{.labels = {}, .value = metric.value(use)}}});
  }
  return families;
}

}  // namespace tandem
