#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/admin/metric_family.h"

namespace tandem {

// The text format in which metrics are served to scrapers: Prometheus' text format 0.0.4, or
// OpenMetrics 1.0, which also has exemplars.
enum class ExpositionFormat : uint8_t { kText, kOpenMetrics };

// The format for a client: OpenMetrics when the value of its Accept header ranks it at least as
// high as text/plain, else the text format.
ExpositionFormat FormatFor(std::optional<std::string_view> accept);

// The value of the Content-Type header for a page in this format.
std::string_view ContentType(ExpositionFormat format);

// Writes the metrics page. Families without a series are left out. Bounds of buckets are written
// alike in both formats ("1.0"), so that a series is the same however it was scraped.
std::string Expose(std::span<const MetricFamily> families, ExpositionFormat format);

}  // namespace tandem
