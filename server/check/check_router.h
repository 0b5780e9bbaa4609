#pragma once

#include <chrono>

#include "server/assembly/router_process_options.h"
#include "server/check/findings.h"

namespace tandem {

// Finds out whether a router with these options would start, as far as that shows without
// listening, and who could use it. Reads the model's folder, the access file and the TLS files.
void CheckRouter(const RouterProcessOptions& options, std::chrono::system_clock::time_point now,
                 Findings& findings);

}  // namespace tandem
