#include <chrono>
#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "server/admin/status_json.h"
#include "server/admin/status_report.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/number_flag.h"
#include "server/commands/tls_flags.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kAnswerTimeout(5);
constexpr std::chrono::milliseconds kPollInterval(20);

struct StatusFlags {
  std::string server = kDefaultServer;
  TlsFiles tls;
  double wait_seconds = 0;
  bool blocks = false;
  bool links = false;
  bool costs = false;
  bool json = false;
};

int RunStatus(const StatusFlags& flags) {
  using SteadyTime = std::chrono::steady_clock;
  const auto deadline = SteadyTime::now() + std::chrono::duration<double>(flags.wait_seconds);
  Client client(flags.server, flags.tls);
  while (true) {
    const auto left = std::chrono::duration_cast<Client::Timeout>(deadline - SteadyTime::now());
    if (left > Client::Timeout::zero()) client.WaitUntilConnected(left);
    const auto status = client.GetStatus(kAnswerTimeout);
    const bool ready = status.ok() && status->ready();
    if (!ready && SteadyTime::now() < deadline) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    if (!status.ok()) return PrintError(status.status());
    if (flags.json) {
      fmt::print("{}\n", StatusJson(*status));
    } else {
      fmt::print("{}{}{}{}", WorkerTable(*status), flags.blocks ? "\n" + BlocksTable(*status) : "",
                 flags.links ? "\n" + LinkTable(*status) : "",
                 flags.costs ? "\n" + CostTable(*status) : "");
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
      ->check(NotNegative());
  status->add_flag("--blocks", flags->blocks,
                   "also where each worker's KV blocks are; --json always says so");
  status->add_flag("--links", flags->links,
                   "also the ways that KV takes between workers, with their measured rates, and "
                   "the hand-offs; --json always says so");
  status->add_flag("--costs", flags->costs,
                   "also what each worker's steps take by its cost model, and how well that "
                   "predicts them; --json always says so");
  status->add_flag("--json", flags->json, "print one JSON object");
  AddClientTlsFlags(*status, flags->tls);
  status->footer(
      "Examples:\n"
      "  tandem status --server 127.0.0.1:8080 --wait 10\n"
      "  tandem status --blocks --links --costs");
  status->callback([flags, &chosen] { chosen = [flags] { return RunStatus(*flags); }; });
}

}  // namespace tandem
