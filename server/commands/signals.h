#pragma once

namespace tandem {

// Blocks SIGINT and SIGTERM in this thread and those it starts later, and ignores SIGPIPE: call
// first of all in a process that drains.
void BlockTerminationSignals();
// Waits for SIGINT or SIGTERM. Afterwards a second one ends the process at once.
int WaitForTermination();

}  // namespace tandem
