#include "server/commands/worker_flags.h"

#include "CLI/CLI.hpp"
#include "server/commands/flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/router_flags.h"
#include "server/commands/server_limit_flags.h"
#include "server/commands/tls_flags.h"
#include "server/commands/trace_flags.h"

namespace tandem {
namespace {

void AddIdentityFlags(CLI::App& app, WorkerFlags& flags) {
  WorkerOptions& options = flags.options;
  app.add_option("--role", flags.role, "prefill, decode, or unified (both)")
      ->required()
      ->check(CLI::IsMember({"prefill", "decode", "unified"}));
  app.add_option("--model", options.model_dir,
                 "directory with config.json and *.safetensors; with --device simulated:FILE none "
                 "is needed");
  app.add_option("--router", options.routers,
                 "host:port of a router, or dns:name:port for a router at every address that DNS "
                 "has for the name; may be repeated")
      ->required();
  app.add_option("--model-name", options.model_name, "as the router's; default: its folder");
  app.add_option("--name", options.name, "unique in the cluster; default: role and pid");
}

void AddAddressFlags(CLI::App& app, WorkerOptions& options) {
  app.add_option("--host", options.host, "address to listen on")->capture_default_str();
  app.add_option("--advertise", options.advertised_host,
                 "host that others connect to; default: --host");
  app.add_option("--port", options.port, "of the worker service; 0: a free one")
      ->capture_default_str();
  app.add_option("--data-port", options.data_port, "where KV arrives; 0: a free one")
      ->capture_default_str();
  app.add_option("--advertise-data", options.advertised_data,
                 "where others reach --data-port, where that is not --advertise (a proxy, a "
                 "mapped port), as tcp:host:port; nothing else is offered then");
}

}  // namespace

void AddWorkerFlags(CLI::App& app, WorkerFlags& flags) {
  AddIdentityFlags(app, flags);
  AddAddressFlags(app, flags.options);
  app.add_option("--drain-seconds", flags.drain_seconds,
                 "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddMetricsFlag(app, flags.options.metrics_port);
  AddMetricsTlsFlag(app, flags.options.metrics_tls);
  AddLogFlags(app, flags.log);
  AddReadyFlag(app, flags.ready_fd);
  AddTuningFlags(app, flags.options.tuning);
  AddTraceFlags(app, flags.options.trace);
  AddTraceFileFlag(app, flags.options.trace);
  AddServerLimitFlags(app, flags.options.server);
  AddPortTlsFlags(app, flags.options.tls);
}

Role RoleNamed(const std::string& role) {
  if (role == "prefill") return Role::kPrefill;
  return role == "decode" ? Role::kDecode : Role::kUnified;
}

}  // namespace tandem
