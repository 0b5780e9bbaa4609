#include "server/commands/up_flags.h"

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "server/commands/flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/server_limit_flags.h"
#include "server/commands/tls_flags.h"
#include "server/commands/trace_flags.h"

namespace tandem {
namespace {

constexpr int kMaxWorkers = 64;  // the most workers of one role

void AddPlaceFlags(CLI::App& up, UpFlags& flags) {
  up.add_option(
      "--model", flags.model_dir,
      "directory with config.json and *.safetensors; with --device simulated:FILE only its "
      "tokenizer is used, and none is needed");
  up.add_option("--model-name", flags.model_name, "served under this name; default: its folder");
  up.add_option("--port", flags.port, "of the router; 0: a free one")->capture_default_str();
  up.add_option("--host", flags.host, "address to listen on")->capture_default_str();
  CLI::Option* http_port = up.add_option(
      "--http-port", flags.http_port,
      fmt::format("serve HTTP there; 0: a free one; default: {}, or a free one if that is taken",
                  kDefaultHttpPort));
  up.add_flag("--no-http", flags.no_http, "serve no HTTP")->excludes(http_port);
  up.add_option("--worker-metrics-port", flags.worker_metrics_port,
                "as --metrics-port, of the first worker; the next one has the next port, prefill "
                "workers first, then decode, then unified ones; 0: free ones");
}

void AddCountFlags(CLI::App& up, UpFlags& flags) {
  const CLI::Range count(0, kMaxWorkers);
  up.add_option("--prefill", flags.prefill, "prefill workers; default: 1 on the CPU, 0 on a GPU")
      ->check(count);
  up.add_option("--decode", flags.decode, "decode workers; default: as --prefill")->check(count);
  up.add_option("--unified", flags.unified, "workers that do both")
      ->check(count)
      ->capture_default_str();
}

}  // namespace

std::function<PassedFlags()> AddUpFlags(CLI::App& app, UpFlags& flags) {
  AddPlaceFlags(app, flags);
  AddCountFlags(app, flags);
  app.add_option("--drain-seconds", flags.drain_seconds,
                 "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddLogFlags(app, flags.log);
  AddTraceFileFlag(app, flags.trace);
  AddReadyFlag(app, flags.ready_fd);
  const PassedOptions to_router = OptionsAddedBy(app, [&] {
    AddMetricsFlag(app, flags.metrics_port);
    AddAccessFlag(app, flags.access_file);
    AddHttpFlags(app, flags.http);
    AddRouterFlags(app, flags.router);
    AddTlsClientsFlag(app, flags.tls_clients);
  });
  const PassedOptions to_workers = OptionsAddedBy(app, [&] { AddTuningFlags(app, flags.tuning); });
  const PassedOptions to_all = OptionsAddedBy(app, [&] {
    AddMetricsTlsFlag(app, flags.metrics_tls);
    AddServerLimitFlags(app, flags.server);
    AddTraceFlags(app, flags.trace);
    AddPortTlsFlags(app, flags.tls);
  });
  return [to_all, to_router, to_workers] {
    return PassedFlags{.to_all = GivenAmong(to_all),
                       .to_router = GivenAmong(to_router),
                       .to_workers = GivenAmong(to_workers)};
  };
}

}  // namespace tandem
