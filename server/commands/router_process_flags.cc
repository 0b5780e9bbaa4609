#include "server/commands/router_process_flags.h"

#include "CLI/CLI.hpp"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
#include "server/commands/http_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/router_flags.h"
#include "server/commands/server_limit_flags.h"
#include "server/commands/tls_flags.h"
#include "server/commands/trace_flags.h"
#include "server/commands/version.h"

namespace tandem {

RouterProcessOptions RouterProcessFlags::Complete() const {
  RouterProcessOptions complete = options;
  complete.build = kVersion;
  complete.trace.environment = ReadTraceEnvironment();
  complete.require_client_certificates = tls_clients == "require";
  return complete;
}

void AddRouterProcessFlags(CLI::App& app, RouterProcessFlags& flags) {
  RouterProcessOptions& options = flags.options;
  options.port = kDefaultPort;
  app.add_option("--model", options.model_dir,
                 "directory with config.json and tokenizer.json; weights are not read");
  app.add_option("--simulated", options.simulated,
                 "parameter file of the workers' --device simulated:FILE; prompts are token ids "
                 "unless --model has a tokenizer");
  app.add_option("--model-name", options.model_name, "served under this name; default: its folder");
  app.add_option("--port", options.port, "0: a free one")->capture_default_str();
  app.add_option("--host", options.host, "address to listen on")->capture_default_str();
  AddMetricsFlag(app, options.metrics_port);
  AddMetricsTlsFlag(app, options.metrics_tls);
  app.add_option("--http-port", options.http_port,
                 "serve HTTP there; 0: a free one; default: not at all");
  AddHttpFlags(app, options.http);
  AddAccessFlag(app, options.access_file);
  app.add_option("--drain-seconds", flags.drain_seconds,
                 "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddRouterFlags(app, options.tuning);
  AddTraceFlags(app, options.trace);
  AddTraceFileFlag(app, options.trace);
  AddServerLimitFlags(app, options.server);
  AddPortTlsFlags(app, options.tls);
  AddTlsClientsFlag(app, flags.tls_clients);
  AddLogFlags(app, flags.log);
  AddReadyFlag(app, flags.ready_fd);
}

}  // namespace tandem
