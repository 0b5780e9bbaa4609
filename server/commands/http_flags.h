#pragma once

#include <cstdint>

#include "server/assembly/router_process_options.h"

namespace CLI {
class App;
}

namespace tandem {

inline constexpr uint16_t kDefaultHttpPort = 8000;

void AddHttpFlags(CLI::App& app, HttpTuning& tuning);

}  // namespace tandem
