#include "server/admin/http_metrics.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/refusal_counts.h"

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
constexpr HttpMetric kMetricsPortMetrics[] = {
    {"tandem_metrics_port_connections", "Open connections to the port of --metrics-port",
     Of<&HttpUse::open>},
    {"tandem_metrics_port_connections_evicted_total",
     "Connections to the port of --metrics-port that were closed to make room",
     Of<&HttpUse::evicted>},
};

// The name and the help text of the counter of refused requests to the HTTP port. Its samples have
// the label "status".
constexpr std::pair<std::string_view, std::string_view> kHttpRefusals = {
    "tandem_http_requests_refused_total",
    "Requests to the HTTP port that no handler saw, by the status of the answer; none: the client "
    "was "
    "silent until its connection was closed"};
constexpr std::pair<std::string_view, std::string_view> kMetricsPortRefusals = {
    "tandem_metrics_port_requests_refused_total", "The same of the port of --metrics-port"};

MetricFamily RefusalsOf(const std::pair<std::string_view, std::string_view>& texts,
                        const HttpUse& use) {
  MetricFamily family{.name = std::string(texts.first),
                      .help = std::string(texts.second),
                      .kind = MetricKind::kCounter};
  for (const auto& [status, count] : use.refusals) {
    std::string text = status == RefusalCounts::kSilent ? "none" : std::to_string(status);
    family.samples.push_back(
        {.labels = {{"status", std::move(text)}}, .value = static_cast<double>(count)});
  }
  return family;
}

std::vector<MetricFamily> FamiliesOf(std::span<const HttpMetric> metrics, const HttpUse& use) {
  std::vector<MetricFamily> families;
  for (const HttpMetric& metric : metrics) {
    const bool counts = metric.name.ends_with("_total");
    families.push_back({.name = std::string(metric.name),
                        .help = std::string(metric.help),
                        .kind = counts ? MetricKind::kCounter : MetricKind::kGauge,
                        .samples = {{.labels = {}, .value = metric.value(use)}}});
  }
  return families;
}

}  // namespace

std::vector<MetricFamily> HttpMetrics(const HttpUse& use) {
  std::vector<MetricFamily> families = FamiliesOf(kHttpMetrics, use);
  families.push_back(RefusalsOf(kHttpRefusals, use));
  return families;
}

std::vector<MetricFamily> MetricsPortMetrics(const HttpUse& use) {
  std::vector<MetricFamily> families = FamiliesOf(kMetricsPortMetrics, use);
  families.push_back(RefusalsOf(kMetricsPortRefusals, use));
  return families;
}

}  // namespace tandem
