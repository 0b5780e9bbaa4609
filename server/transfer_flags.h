#pragma once

#include <string>
#include <vector>

#include "server/assembly/worker_options.h"

namespace CLI {
class App;
}

namespace tandem {

// How workers move KV: the flags that `tandem worker` and `tandem up` share.
void AddTransferFlags(CLI::App& app, TransferTuning& tuning);
// The same as a command line, for a child process.
std::vector<std::string> TransferArguments(const TransferTuning& tuning);

}  // namespace tandem
