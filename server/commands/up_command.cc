#include <memory>
#include <optional>

#include "CLI/CLI.hpp"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "server/assembly/model_name.h"
#include "server/assembly/simulated_worker.h"
#include "server/assembly/worker_options.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
#include "server/commands/http_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/passed_options.h"
#include "server/commands/router_flags.h"
#include "server/commands/server_limit_flags.h"
#include "server/commands/supervisor.h"
#include "server/commands/tls_flags.h"
#include "server/commands/trace_flags.h"
#include "server/services/descriptor_limit.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

constexpr int kMaxWorkers = 64;  // of one role

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
  std::string access_file;
  std::optional<uint16_t> worker_metrics_port;  // of the first worker
  HttpTuning http;
  TraceTuning trace;
  TlsFiles tls;
  std::string tls_clients = "optional";
  // The arguments of children that were given to this command.
  std::vector<std::string> to_all;
  std::vector<std::string> to_router;
  std::vector<std::string> to_workers;
};

void Append(const std::vector<std::string>& more, std::vector<std::string>& arguments) {
  arguments.insert(arguments.end(), more.begin(), more.end());
}

std::vector<std::string> CommonArguments(const UpFlags& flags, const std::string& model_name,
                                         const std::string& process) {
  std::vector<std::string> arguments = {
      "--model-name=" + model_name, "--log-level=" + flags.log.level,
      "--log-format=" + flags.log.format, fmt::format("--drain-seconds={}", flags.drain_seconds)};
  if (!flags.model_dir.empty()) arguments.push_back("--model=" + flags.model_dir);
  if (!flags.trace.file.empty()) {  // processes do not share one, which each of them bounds
    arguments.push_back(fmt::format("--trace-file={}.{}", flags.trace.file, process));
  }
  Append(flags.to_all, arguments);
  return arguments;
}

// Workers are called from this machine only.
std::string WorkersHost(const std::string& host) {
  return KindOfHost(host) == HostKind::kUnspecified ? "127.0.0.1" : host;
}

std::vector<std::string> RouterArguments(const UpFlags& flags, const std::string& model_name) {
  std::vector<std::string> arguments = {"router", "--host=" + flags.host};
  Append(CommonArguments(flags, model_name, "router"), arguments);
  Append(flags.to_router, arguments);
  if (const std::optional<std::string> file = SimulatedFile(flags.tuning.device)) {
    arguments.push_back("--simulated=" + *file);
  }
  return arguments;
}

void AddWorkers(const std::string& role, int count, const UpFlags& flags,
                SupervisorOptions& options) {
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("{}-{}", role, i);
    std::vector<std::string> arguments = {"worker", "--role", role, "--name=" + name,
                                          "--host=" + WorkersHost(flags.host)};
    Append(CommonArguments(flags, options.model, name), arguments);
    Append(flags.to_workers, arguments);
    if (const auto first = flags.worker_metrics_port) {
      const size_t port = *first == 0 ? 0 : *first + options.workers.size();
      arguments.push_back(fmt::format("--metrics-port={}", port));
    }
    options.workers.push_back({name, std::move(arguments)});
  }
}

// Workers that share one GPU have nothing to gain from handing KV over: unless it is asked for, one
// unified worker has it alone.
absl::Status ChooseWorkers(UpFlags& flags) {
  const bool on_cpu = flags.tuning.device == "cpu" || SimulatedFile(flags.tuning.device);
  flags.prefill = flags.prefill.value_or(on_cpu ? 1 : 0);
  flags.decode = flags.decode.value_or(on_cpu ? 1 : 0);
  if (flags.unified == 0 && (flags.prefill == 0 || flags.decode == 0)) {
    return InvalidArgument(
        "no route: give a unified worker, or a prefill worker and a decode worker (--unified, "
        "--prefill, --decode)");
  }
  if (!on_cpu && !flags.tuning.device_memory_fraction) {
    const int workers = flags.unified + *flags.prefill + *flags.decode;
    flags.to_workers.push_back(
        fmt::format("--device-memory-fraction={}", kDefaultDeviceMemoryFraction / workers));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ServedName(const UpFlags& flags) {
  if (const std::optional<std::string> file = SimulatedFile(flags.tuning.device)) {
    ASSIGN_OR_RETURN(const SimulatedDevice device, LoadSimulatedDevice(*file, flags.model_dir));
    return SimulatedModelName(device, flags.model_name);
  }
  if (flags.model_dir.empty()) {
    return InvalidArgument(
        "--model is missing: give a directory with config.json and *.safetensors");
  }
  return flags.model_name.empty() ? ModelNameFor(flags.model_dir) : flags.model_name;
}

// The port is chosen here and not by the router, which must be found where it was after a restart.
// UNAVAILABLE when the one that was asked for is taken.
absl::StatusOr<uint16_t> ChooseHttpPort(const UpFlags& flags) {
  auto listening = ListenEverywhere(flags.host, flags.http_port.value_or(kDefaultHttpPort));
  if (listening.ok()) return LocalPort(listening->front());
  if (flags.http_port) {
    return Unavailable("choose another --http-port: {}", std::string(listening.status().message()));
  }
  ASSIGN_OR_RETURN(listening, ListenEverywhere(flags.host, 0));
  const uint16_t port = LocalPort(listening->front());
  LogWarn("port {} is taken: HTTP is served on port {}; give --http-port or --no-http",
          kDefaultHttpPort, port);
  return port;
}

bool ServesHttps(const UpFlags& flags) {
  return flags.tls.enabled() || !flags.http.tls.cert.empty();
}

// Of `tandem generate` and others, to reach these processes.
std::string ClientFlags(const UpFlags& flags) {
  if (!flags.tls.enabled()) return "";
  std::string text = " --tls-ca " + flags.tls.ca;
  if (flags.tls_clients == "require") text += " --tls-cert CERTIFICATE --tls-key KEY";
  return text;
}

absl::Status AddHttp(const UpFlags& flags, SupervisorOptions& options) {
  if (flags.no_http) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint16_t port, ChooseHttpPort(flags));
  options.router_arguments.push_back(fmt::format("--http-port={}", port));
  options.has_page = !flags.http.no_page;
  options.http_url =
      fmt::format("{}://{}", ServesHttps(flags) ? "https" : "http", HostPortText(flags.host, port));
  return absl::OkStatus();
}

int RunUp(UpFlags flags) {
  if (absl::Status status = SetUpLogging(flags.log, "up"); !status.ok()) {
    return FailStart(flags.ready_fd, status);
  }
  if (auto limit = RaiseDescriptorLimit(); !limit.ok()) {
    return FailStart(flags.ready_fd, limit.status());
  }
  if (absl::Status status = ChooseWorkers(flags); !status.ok())
    return FailStart(flags.ready_fd, status);
  absl::Status files = flags.tls.Check();
  files.Update(flags.tuning.transfer.tls.Check("--kv-tls"));
  if (!files.ok()) return FailStart(flags.ready_fd, files);
  SupervisorOptions options;
  const absl::StatusOr<std::string> name = ServedName(flags);
  if (!name.ok()) return FailStart(flags.ready_fd, name.status());
  options.model = *name;
  options.drain = std::chrono::seconds(flags.drain_seconds);
  options.ready_fd = flags.ready_fd;
  options.client_flags = ClientFlags(flags);
  options.router_port = flags.port;
  options.router_arguments = RouterArguments(flags, options.model);
  if (absl::Status status = AddHttp(flags, options); !status.ok()) {
    return FailStart(flags.ready_fd, status);
  }
  AddWorkers("prefill", *flags.prefill, flags, options);
  AddWorkers("decode", *flags.decode, flags, options);
  AddWorkers("unified", flags.unified, flags, options);
  const absl::Status status = RunSupervisor(options);
  return status.ok() ? kExitOk : FailStart(flags.ready_fd, status);
}

// The flags that children get as they were given.
struct Passed {
  PassedOptions to_all;
  PassedOptions to_router;
  PassedOptions to_workers;
};

Passed AddPassedFlags(CLI::App& up, UpFlags& flags) {
  Passed passed;
  passed.to_router = OptionsAddedBy(up, [&] {
    AddMetricsFlag(up, flags.metrics_port);
    AddAccessFlag(up, flags.access_file);
    AddHttpFlags(up, flags.http);
    AddRouterFlags(up, flags.router);
    AddTlsClientsFlag(up, flags.tls_clients);
  });
  passed.to_workers = OptionsAddedBy(up, [&] { AddTuningFlags(up, flags.tuning); });
  passed.to_all = OptionsAddedBy(up, [&] {
    AddServerLimitFlags(up, flags.server);
    AddTraceFlags(up, flags.trace);
    AddPortTlsFlags(up, flags.tls);
  });
  return passed;
}

}  // namespace

void AddUpCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<UpFlags>();
  CLI::App* up = app.add_subcommand(
      "up", "Serve a model on this machine: a router and workers, watched and restarted");
  up->add_option(
      "--model", flags->model_dir,
      "directory with config.json and *.safetensors; with --device simulated:FILE only its "
      "tokenizer is used, and none is needed");
  up->add_option("--model-name", flags->model_name, "served under this name; default: its folder");
  up->add_option("--port", flags->port, "of the router; 0: a free one")->capture_default_str();
  up->add_option("--host", flags->host, "address to listen on")->capture_default_str();
  CLI::Option* http_port = up->add_option(
      "--http-port", flags->http_port,
      fmt::format("serve HTTP there; 0: a free one; default: {}, or a free one if that is taken",
                  kDefaultHttpPort));
  up->add_flag("--no-http", flags->no_http, "serve no HTTP")->excludes(http_port);
  up->add_option("--worker-metrics-port", flags->worker_metrics_port,
                 "as --metrics-port, of the first worker; the next one has the next port, prefill "
                 "workers first, then decode, then unified ones; 0: free ones");
  const CLI::Range count(0, kMaxWorkers);
  up->add_option("--prefill", flags->prefill, "prefill workers; default: 1 on the CPU, 0 on a GPU")
      ->check(count);
  up->add_option("--decode", flags->decode, "decode workers; default: as --prefill")->check(count);
  up->add_option("--unified", flags->unified, "workers that do both")
      ->check(count)
      ->capture_default_str();
  up->add_option("--drain-seconds", flags->drain_seconds,
                 "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddLogFlags(*up, flags->log);
  AddTraceFileFlag(*up, flags->trace);
  AddReadyFlag(*up, flags->ready_fd);
  const Passed passed = AddPassedFlags(*up, *flags);
  up->footer(
      "Prints one line that begins with \"ready:\" and names the address.\n"
      "Example:\n"
      "  tandem up --model models/sample --port 8080\n"
      "  tandem generate \"It was a fine morning\" --server 127.0.0.1:8080\n"
      "  tandem up --device simulated:models/simulated/qwen3-8b-h200.json --prefill 4 --decode 8");
  up->callback([flags, passed, &chosen] {
    flags->to_all = GivenArguments(passed.to_all);
    flags->to_router = GivenArguments(passed.to_router);
    flags->to_workers = GivenArguments(passed.to_workers);
    chosen = [flags] { return RunUp(*flags); };
  });
}

}  // namespace tandem
