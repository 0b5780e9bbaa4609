#pragma once

#include <vector>

#include "server/admin/metric_family.h"
#include "server/http/http_server.h"

namespace tandem {

// The metrics of a router's HTTP port.
std::vector<MetricFamily> HttpMetrics(const HttpUse& use);
// The metrics of the port that --metrics-port opens on a router or on a worker.
std::vector<MetricFamily> MetricsPortMetrics(const HttpUse& use);

}  // namespace tandem
