#pragma once

#include <string>
#include <vector>

#include "server/assembly/worker_options.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags that `tandem worker` and `tandem up` share.
void AddTuningFlags(CLI::App& app, WorkerTuning& tuning);
// The same as a command line, for a child process.
std::vector<std::string> TuningArguments(const WorkerTuning& tuning);

void AddLogLevelFlag(CLI::App& app, std::string& level);
// How a parent process learns that this one is ready; not shown in --help.
void AddReadyFlag(CLI::App& app, int& ready_fd);

}  // namespace tandem
