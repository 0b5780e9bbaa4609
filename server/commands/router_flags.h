#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/assembly/router_process_options.h"

namespace CLI {
class App;
}

namespace tandem {

void AddRouterFlags(CLI::App& app, RouterTuning& tuning);
// The file of API keys and limits of tenants (server/access/api_keys.h).
void AddAccessFlag(CLI::App& app, std::string& path);
void AddMetricsFlag(CLI::App& app, std::optional<uint16_t>& port);
// Adds the flag that says whether the metrics port uses TLS: "off", "on" or "require".
void AddMetricsTlsFlag(CLI::App& app, std::string& tls);

}  // namespace tandem
