#pragma once

#include "absl/status/status.h"
#include "bench/serving/backend.h"
#include "bench/serving/serve_options.h"

namespace tandem::loadgen {

// INVALID_ARGUMENT names the flag and its value. Reads no file and asks no server.
absl::Status Validate(const ServeBenchOptions& options);

// Runs the benchmark and prints the report to stdout. `options` are valid. Errors before the first
// request: the trace's, the server's, a schedule that does not fit its context, files that cannot
// be written. Afterwards: UNAVAILABLE when not one request was complete.
absl::Status ServeBench(const ServeBenchOptions& options, Backend& backend);

}  // namespace tandem::loadgen
