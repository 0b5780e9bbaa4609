#pragma once

#include "server/assembly/worker_options.h"

namespace CLI {
class App;
}

namespace tandem {

// How workers move KV: the flags that `tandem worker` and `tandem up` share.
void AddTransferFlags(CLI::App& app, TransferTuning& tuning);

}  // namespace tandem
