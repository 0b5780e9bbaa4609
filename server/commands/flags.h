#pragma once

#include "base/log_setup.h"
#include "server/assembly/worker_options.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags that `tandem worker` and `tandem up` share.
void AddTuningFlags(CLI::App& app, WorkerTuning& tuning);

void AddLogFlags(CLI::App& app, LogSetup& log);
// Adds --ready-fd, by which a parent process learns that this one is ready; not shown in --help.
void AddReadyFlag(CLI::App& app, int& ready_fd);

}  // namespace tandem
