#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/admin/metric_family.h"

namespace tandem {

// How metrics are written for whoever scrapes them: in Prometheus' text format 0.0.4, or in
// OpenMetrics 1.0, which also has exemplars.
enum class ExpositionFormat : uint8_t { kText, kOpenMetrics };

// OpenMetrics when the value of the header Accept prefers it to text/plain, else the text format.
ExpositionFormat FormatFor(std::optional<std::string_view> accept);

// The value of Content-Type.
std::string_view ContentType(ExpositionFormat format);

// The page. Families without a series are left out. Bounds of buckets are written alike in both
// formats ("1.0"), so that a series is the same however it was scraped.
std::string Expose(std::span<const MetricFamily> families, ExpositionFormat format);

}  // namespace tandem
