#pragma once

#include "server/services/server_limits.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags that `tandem router`, `tandem worker` and `tandem up` share.
void AddServerLimitFlags(CLI::App& app, ServerLimits& limits);

}  // namespace tandem
