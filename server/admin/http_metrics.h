#pragma once

#include <vector>

#include "server/admin/metric_family.h"
#include "server/http/http_server.h"

namespace tandem {

// What a router's HTTP port has done.
std::vector<MetricFamily> HttpMetrics(const HttpUse& use);
// What the port of --metrics-port of a router or of a worker has done.
std::vector<MetricFamily> MetricsPortMetrics(const HttpUse& use);

}  // namespace tandem
