#include <chrono>
#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/client.h"
#include "server/commands.h"
#include "server/generation.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kTimeout(5);
constexpr std::chrono::milliseconds kPollInterval(20);

struct StatusFlags {
  std::string server = kDefaultServer;
  double wait_seconds = 0;
  bool json = false;
};

std::string StatusJson(const v1::GetStatusResponse& status) {
  using Json = nlohmann::ordered_json;
  Json routes = Json::array();
  for (int i = 0; i < status.routes_size(); ++i) routes.push_back(Name(status.routes(i)));
  Json workers = Json::array();
  for (const v1::WorkerStatus& worker : status.workers()) {
    workers.push_back({{"name", worker.name()},
                       {"role", worker.role()},
                       {"address", worker.address()},
                       {"pid", worker.pid()},
                       {"alive", worker.alive()},
                       {"running", worker.running()},
                       {"waiting", worker.waiting()},
                       {"total_blocks", worker.total_blocks()},
                       {"free_blocks", worker.free_blocks()},
                       {"requests_finished", worker.requests_finished()},
                       {"prompt_tokens", worker.prompt_tokens()},
                       {"output_tokens", worker.output_tokens()},
                       {"kv_bytes_sent", worker.kv_bytes_sent()},
                       {"kv_bytes_received", worker.kv_bytes_received()},
                       {"heartbeat_age_ms", worker.heartbeat_age_ms()}});
  }
  return Json({{"ready", status.ready()},
               {"routes", std::move(routes)},
               {"model", status.model()},
               {"version", status.version()},
               {"max_context_tokens", status.max_context_tokens()},
               {"requests_in_flight", status.requests_in_flight()},
               {"requests_total", status.requests_total()},
               {"workers", std::move(workers)}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

void PrintTable(const v1::GetStatusResponse& status) {
  std::string routes;
  for (int i = 0; i < status.routes_size(); ++i) {
    routes += fmt::format("{}{}", i == 0 ? "" : ", ", Name(status.routes(i)));
  }
  fmt::print("{}: model {}, context {}, routes: {}, {} in flight, {} so far, version {}\n",
             status.ready() ? "ready" : "not ready", status.model(), status.max_context_tokens(),
             routes.empty() ? "none" : routes, status.requests_in_flight(), status.requests_total(),
             status.version());
  fmt::print("{:<14} {:<8} {:<21} {:>7} {:<6} {:>7} {:>7} {:>15} {:>9} {:>10} {:>9}\n", "NAME",
             "ROLE", "ADDRESS", "PID", "STATE", "RUNNING", "WAITING", "FREE/ALL BLOCKS", "FINISHED",
             "TOKENS OUT", "HEARD MS");
  for (const v1::WorkerStatus& worker : status.workers()) {
    fmt::print("{:<14} {:<8} {:<21} {:>7} {:<6} {:>7} {:>7} {:>15} {:>9} {:>10} {:>9.0f}\n",
               worker.name(), worker.role(), worker.address(), worker.pid(),
               worker.alive() ? "alive" : "lost", worker.running(), worker.waiting(),
               fmt::format("{}/{}", worker.free_blocks(), worker.total_blocks()),
               worker.requests_finished(), worker.output_tokens(), worker.heartbeat_age_ms());
  }
}

int RunStatus(const StatusFlags& flags) {
  using SteadyTime = std::chrono::steady_clock;
  const auto deadline = SteadyTime::now() + std::chrono::duration<double>(flags.wait_seconds);
  Client client(flags.server);
  while (true) {
    const auto left = std::chrono::duration_cast<Client::Timeout>(deadline - SteadyTime::now());
    if (left > Client::Timeout::zero()) client.WaitUntilConnected(left);
    const auto status = client.GetStatus(kTimeout);
    const bool ready = status.ok() && status->ready();
    if (!ready && SteadyTime::now() < deadline) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    if (!status.ok()) return PrintError(status.status());
    if (flags.json) {
      fmt::print("{}\n", StatusJson(*status));
    } else {
      PrintTable(*status);
    }
    if (ready) return kExitOk;
    return PrintError(Unavailable("not ready: no route can be served yet"));
  }
}

}  // namespace

void AddStatusCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* status = app.add_subcommand("status", "Show the workers; exit 0 once it can serve");
  status->add_option("--server", flags->server, "host:port of the router")->capture_default_str();
  status->add_option("--wait", flags->wait_seconds, "seconds to wait until it can serve")
      ->check(CLI::NonNegativeNumber);
  status->add_flag("--json", flags->json, "print one JSON object");
  status->footer(
      "Example:\n"
      "  tandem status --server 127.0.0.1:8080 --wait 10");
  status->callback([flags, &chosen] { chosen = [flags] { return RunStatus(*flags); }; });
}

}  // namespace tandem
