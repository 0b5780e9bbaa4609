#include "server/assembly/worker_pages.h"

#include <utility>

#include "server/admin/field_metrics.h"
#include "server/admin/metrics_page.h"
#include "server/admin/trace_metrics.h"

namespace tandem {
namespace {

std::vector<MetricFamily> MetricsOf(const WorkerPageParts& parts) {
  v1::WorkerStatus status;
  status.set_name(parts.name);
  status.set_role(parts.role);
  status.set_alive(true);
  *status.mutable_load() = parts.load();
  std::vector<MetricFamily> families = WorkerMetrics(status, parts.peers());
  for (MetricFamily& family : WorkerFieldMetrics(parts.model, status.load())) {
    families.push_back(std::move(family));
  }
  if (const auto use = parts.tracing.use()) {
    for (MetricFamily& family : TraceMetrics(*use)) families.push_back(std::move(family));
  }
  return families;
}

HealthReport ReadyReport(const WorkerPageParts& parts) {
  HealthReport report{.checks = ThreadChecks(parts.watchdog, ThreadProof::kSeenToMove)};
  for (HealthCheck& check : WorkChecks(parts.watchdog)) report.checks.push_back(std::move(check));
  const v1::WorkerLoad load = parts.load();
  const auto add = [&report](const char* name, bool fails, const char* problem) {
    report.checks.push_back({.name = name, .problem = fails ? problem : ""});
  };
  add("weights", load.starting(), "weights are being loaded, or steps are measured at the start");
  add("draining", parts.draining(), "the worker is draining");
  add("connections", load.connections().full(),
      "the gRPC port has all the connections that it may have");
  return report;
}

}  // namespace

AdminPages WorkerPages(const WorkerPageParts& parts) {
  return {.metrics = [parts] { return MetricsOf(parts); },
          .live =
              [&watchdog = parts.watchdog] {
                return HealthReport{.checks = ThreadChecks(watchdog, ThreadProof::kNoneHangs)};
              },
          .ready = [parts] { return ReadyReport(parts); }};
}

}  // namespace tandem
