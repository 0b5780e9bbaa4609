#pragma once

#include <functional>

#include "base/clock.h"

namespace tandem {

// Blocks SIGINT and SIGTERM in this thread and those that it starts later, and ignores SIGPIPE. A
// process that drains before it ends must call it before it starts any thread.
void BlockTerminationSignals();
// Waits for SIGINT or SIGTERM, and calls `meanwhile` each time that `interval` has passed.
// Afterwards a second signal ends the process at once.
void WaitForTermination(Duration interval, const std::function<void()>& meanwhile);

}  // namespace tandem
