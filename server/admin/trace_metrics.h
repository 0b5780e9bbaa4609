#pragma once

#include <vector>

#include "server/admin/metric_family.h"
#include "tracing/span_exporter.h"

namespace tandem {

// Metrics of the tracing spans of a process: how many were exported and how many were lost.
std::vector<MetricFamily> TraceMetrics(const SpanExportUse& use);

}  // namespace tandem
