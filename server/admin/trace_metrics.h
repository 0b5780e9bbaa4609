#pragma once

#include <vector>

#include "server/admin/metric_family.h"
#include "tracing/span_exporter.h"

namespace tandem {

// What became of the spans of a process.
std::vector<MetricFamily> TraceMetrics(const SpanExportUse& use);

}  // namespace tandem
