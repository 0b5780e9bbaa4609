#pragma once

#include <string>
#include <vector>

#include "server/server_limits.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags that `tandem router`, `tandem worker` and `tandem up` share.
void AddServerLimitFlags(CLI::App& app, ServerLimits& limits);
// The same as a command line, for a child process.
std::vector<std::string> ServerLimitArguments(const ServerLimits& limits);

}  // namespace tandem
