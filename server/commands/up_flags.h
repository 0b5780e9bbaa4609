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

// The flags of `tandem up`, and of `tandem check`, which says what `tandem up` would do with them.
struct UpFlags {
  std::string model_dir;
  std::string model_name;
  std::string host = "127.0.0.1";
  uint16_t port = kDefaultPort;
  std::optional<uint16_t> http_port;
  bool no_http = false;
  std::optional<int> prefill;  // nothing: one on the CPU, none on a GPU
  std::optional<int> decode;   // nothing: one on the CPU, none on a GPU
  int unified = 1;
  int drain_seconds = 30;
  LogSetup log = {.level = "warn"};
  int ready_fd = -1;
  WorkerTuning tuning;
  // The fields from here to tls_clients configure the child processes.
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

// Adds the flags. The function that it returns must be called after parsing, and returns which of
// the given flags are passed on to children.
std::function<PassedFlags()> AddUpFlags(CLI::App& app, UpFlags& flags);

}  // namespace tandem
