#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log_setup.h"
#include "server/assembly/worker_options.h"
#include "server/commands/commands.h"
#include "server/commands/config_reader.h"
#include "server/commands/http_flags.h"
#include "server/commands/passed_options.h"
#include "server/commands/router_flags.h"
#include "server/services/server_limits.h"
#include "server/tracing/trace_tuning.h"

namespace CLI {
class App;
}

namespace tandem {

// The flags that children of `tandem up` get as they were given to it.
struct PassedFlags {
  FlagValues to_all;
  FlagValues to_router;
  FlagValues to_workers;
};

// The flags of `tandem up`, and of `tandem check`, which says what would become of them.
struct UpFlags {
  std::string model_dir;
  std::string model_name;
  std::string host = "127.0.0.1";
  uint16_t port = kDefaultPort;
  std::optional<uint16_t> http_port;
  bool no_http = false;
  std::optional<int> prefill;  // nothing: one on the CPU, none on a GPU
  std::optional<int> decode;   // likewise
  int unified = 1;
  int drain_seconds = 30;
  LogSetup log = {.level = "warn"};
  int ready_fd = -1;
  WorkerTuning tuning;
  // Only children use the values of these.
  RouterTuning router;
  ServerLimits server;
  std::optional<uint16_t> metrics_port;
  std::string metrics_tls = "off";
  std::string access_file;
  std::optional<uint16_t> worker_metrics_port;  // of the first worker
  HttpTuning http;
  TraceTuning trace;
  TlsFiles tls;
  std::string tls_clients = "optional";
  PassedFlags passed;
  std::shared_ptr<const ConfigUse> config;
};

// Returns what takes down, once all flags have been parsed, which of them children get.
std::function<PassedFlags()> AddUpFlags(CLI::App& app, UpFlags& flags);

}  // namespace tandem
