#pragma once

#include "server/tracing/trace_tuning.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags of tracing that `tandem router`, `tandem worker` and `tandem up` share.
void AddTraceFlags(CLI::App& app, TraceTuning& tuning);
// Adds the flag for the file of spans of one process; `tandem up` gives each of its children a file
// of its own.
void AddTraceFileFlag(CLI::App& app, TraceTuning& tuning);

TraceEnvironment ReadTraceEnvironment();

}  // namespace tandem
