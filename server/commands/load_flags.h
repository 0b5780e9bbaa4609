#pragma once

#include "server/commands/bench_flags.h"

namespace CLI {
class App;
}

namespace tandem {

// Adds the flags of a command that sends a load: which requests are sent and when, how they are
// measured, and where the results go.
void AddWorkloadFlags(CLI::App& command, BenchFlags& flags);
void AddArrivalFlags(CLI::App& command, BenchFlags& flags);
void AddMeasuringFlags(CLI::App& command, BenchFlags& flags);
void AddOutputFlags(CLI::App& command, BenchFlags& flags);

}  // namespace tandem
