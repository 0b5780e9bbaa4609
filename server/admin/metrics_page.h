#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/admin/metric_family.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// The metrics that metrics_table.h lists. Units are seconds and bytes; counters count since the
// process started.

// The metrics of a router, of its workers, and of the links that KV takes between them.
std::vector<MetricFamily> StatusMetrics(const v1::GetStatusResponse& status);

// The metrics of one worker from its own status, with the same labels as on its router's page.
// `peers`: the names of the workers that it sends KV to; links to others are left out, because
// their addresses change with each start.
std::vector<MetricFamily> WorkerMetrics(const v1::WorkerStatus& worker,
                                        const std::set<std::string>& peers);

}  // namespace tandem
