#pragma once

#include <functional>

#include "base/clock.h"

namespace tandem {

// Blocks SIGINT and SIGTERM in this thread and those it starts later, and ignores SIGPIPE: call
// first of all in a process that drains.
void BlockTerminationSignals();
// Waits for SIGINT or SIGTERM, and calls `meanwhile` each time that `interval` has passed. Afterwards a second
// signal ends the process at once.
void WaitForTermination(Duration interval, const std::function<void()>& meanwhile);

}  // namespace tandem
