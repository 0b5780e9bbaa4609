#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/request/request_metrics.h"
#include "server/admin/metric_family.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Metrics under the names, units and buckets that dashboards and autoscalers for servers of
// language models already read: those of vLLM. Each has the label model_name.

// A name and what it counts, for the page of docs that lists all metrics.
struct FieldMetric {
  std::string_view name;
  std::string_view help;
};
// All metrics of this kind, in the order of the metrics page.
std::vector<FieldMetric> FieldMetrics();

// The metrics of a router. Gauges are sums over the workers of `status`; counters and histograms
// are of the requests that this router served, so that they never fall when a worker leaves.
std::vector<MetricFamily> RouterFieldMetrics(const v1::GetStatusResponse& status,
                                             const RequestMetrics& requests);

// The gauges and counters of one worker. A worker sees parts of requests, so it has no histograms.
std::vector<MetricFamily> WorkerFieldMetrics(const std::string& model, const v1::WorkerLoad& load);

// tandem_request_ends_total: requests of a router by the status that they ended with.
MetricFamily RequestEnds(const RequestMetrics& requests);

}  // namespace tandem
