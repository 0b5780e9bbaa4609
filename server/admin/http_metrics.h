#pragma once

#include <vector>

#include "server/admin/metric_family.h"
#include "server/http/http_server.h"

namespace tandem {

// What a router's HTTP port has done.
std::vector<MetricFamily> HttpMetrics(const HttpUse& use);

}  // namespace tandem
