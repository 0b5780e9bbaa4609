#include "server/admin/trace_metrics.h"

#include <string>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

struct TraceMetric {
  std::string_view name;
  std::string_view help;
};

constexpr TraceMetric kExported = {"tandem_trace_spans_exported_total",
                                   "Spans of requests that the collector or the file took"};
constexpr TraceMetric kDropped = {
    "tandem_trace_spans_dropped_total",
    "Spans that were dropped because too many waited, or because the collector or the file did not "
    "take them"};

MetricFamily Counter(const TraceMetric& metric, std::vector<MetricSample> samples) {
  return {.name = std::string(metric.name),
          .help = std::string(metric.help),
          .kind = MetricKind::kCounter,
          .samples = std::move(samples),
          .histograms = {}};
}

MetricSample Dropped(const char* why, uint64_t spans) {
  return {.labels = {{"why", why}}, .value = static_cast<double>(spans)};
}

}  // namespace

std::vector<MetricFamily> TraceMetrics(const SpanExportUse& use) {
  return {Counter(kExported, {{.labels = {}, .value = static_cast<double>(use.exported)}}),
          Counter(kDropped, {Dropped("queue_full", use.dropped_queue_full),
                             Dropped("not_taken", use.dropped_not_taken)})};
}

}  // namespace tandem
