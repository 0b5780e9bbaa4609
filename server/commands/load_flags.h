#pragma once

#include "server/commands/bench_flags.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags that say which load is sent, how it is measured, and where results go: of every command
// that has a load.
void AddWorkloadFlags(CLI::App& command, BenchFlags& flags);
void AddArrivalFlags(CLI::App& command, BenchFlags& flags);
void AddMeasuringFlags(CLI::App& command, BenchFlags& flags);
void AddOutputFlags(CLI::App& command, BenchFlags& flags);

}  // namespace tandem
