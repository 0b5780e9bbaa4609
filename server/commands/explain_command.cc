#include <memory>
#include <optional>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "router/explain/decision_log.h"
#include "server/admin/explain_report.h"
#include "server/admin/status_json.h"
#include "server/commands/client.h"
#include "server/commands/columns.h"
#include "server/commands/commands.h"
#include "server/commands/tls_flags.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kExplainTimeout(5);

struct ExplainFlags {
  std::string request_id;
  std::optional<int32_t> last;
  std::string server = kDefaultServer;
  TlsFiles tls;
  bool json = false;
};

int RunExplain(const ExplainFlags& flags) {
  if (flags.request_id.empty() == !flags.last.has_value()) {
    return PrintError(InvalidArgument("give either the id of a request or --last N"));
  }
  v1::ExplainRequest request;
  if (flags.last) {
    request.set_latest(*flags.last);
  } else {
    request.set_request_id(flags.request_id);
  }
  // The router would refuse it, too, but protobuf strings cannot carry text that is not UTF-8 to
  // it.
  if (const absl::Status valid = ValidateExplain(request); !valid.ok()) return PrintError(valid);
  const auto response = Client(flags.server, flags.tls).Explain(request, kExplainTimeout);
  if (!response.ok()) return PrintError(response.status());
  if (flags.json) {
    fmt::print("{}\n", ExplanationJson(*response));
  } else if (flags.last && *flags.last > 1) {
    fmt::print("{}", ExplanationList(*response));
  } else if (response->requests().empty()) {
    fmt::print("this router has sent no request to a worker yet\n");
  } else {
    fmt::print("{}", ExplanationText(response->requests(0), ColumnsOfOutput()));
  }
  return kExitOk;
}

}  // namespace

void AddExplainCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* explain = app.add_subcommand(
      "explain", "Show why a request went where it went, and whether the prediction came true");
  explain->add_option("request_id", flags->request_id,
                      "the id that the client gave, or the one that `tandem generate --verbose` "
                      "prints");
  explain->add_option("--last", flags->last,
                      "instead of one request's id: list so many of the latest requests, or with 1 "
                      "show all of the latest one");
  explain->add_option("--server,--router", flags->server, "host:port of the router")
      ->capture_default_str();
  explain->add_flag("--json", flags->json, "print one JSON object");
  AddClientTlsFlags(*explain, flags->tls);
  explain->footer(
      "Examples:\n"
      "  tandem explain --last 20\n"
      "  tandem explain my-request --json");
  explain->callback([flags, &chosen] { chosen = [flags] { return RunExplain(*flags); }; });
}

}  // namespace tandem
