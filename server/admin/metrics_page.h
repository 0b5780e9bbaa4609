#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// A router's status in the text format that Prometheus reads: of the router, of its workers, and of
// the ways that KV takes between them. Seconds and bytes, counters since the process started.
std::string MetricsPage(const v1::GetStatusResponse& status);

}  // namespace tandem
