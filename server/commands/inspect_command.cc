#include <chrono>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "router/explain/decision_log.h"
#include "server/admin/kv_dump_file.h"
#include "server/admin/kv_report.h"
#include "server/admin/status_json.h"
#include "server/commands/client.h"
#include "server/commands/columns.h"
#include "server/commands/commands.h"
#include "server/commands/tls_flags.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kInspectTimeout(5);

struct InspectKvFlags {
  std::string request_id;
  std::string file;
  std::string server = kDefaultServer;
  TlsFiles tls;
  bool json = false;
};

absl::StatusOr<v1::RequestExplanation> RequestOfRouter(const InspectKvFlags& flags) {
  v1::ExplainRequest request;
  request.set_request_id(flags.request_id);
  // The router would refuse it, too, but protobuf strings cannot carry text that is not UTF-8 to
  // it.
  RETURN_IF_ERROR(ValidateExplain(request));
  ASSIGN_OR_RETURN(const v1::ExplainResponse response,
                   Client(flags.server, flags.tls).Explain(request, kInspectTimeout));
  if (response.requests().empty()) return Internal("the router explained no request");
  RETURN_IF_ERROR(CheckHandoff(response.requests(0)));
  return response.requests(0);
}

absl::StatusOr<v1::RequestExplanation> InspectedRequest(const InspectKvFlags& flags) {
  if (flags.request_id.empty() == flags.file.empty()) {
    return InvalidArgument("give either the id of a request or --file F");
  }
  return flags.file.empty() ? RequestOfRouter(flags) : ReadKvDumpFile(flags.file);
}

int RunInspectKv(const InspectKvFlags& flags) {
  const absl::StatusOr<v1::RequestExplanation> request = InspectedRequest(flags);
  if (!request.ok()) return PrintError(request.status());
  if (flags.json) {
    fmt::print("{}\n", HandoffJson(*request));
  } else {
    fmt::print("{}", HandoffText(*request, ColumnsOfOutput()));
  }
  return kExitOk;
}

}  // namespace

void AddInspectCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<InspectKvFlags>();
  CLI::App* inspect = app.add_subcommand("inspect", "Look into what a request left behind");
  inspect->require_subcommand(1);
  CLI::App* kv = inspect->add_subcommand(
      "kv", "Show what the KV of a request took on its way, per layer and for K and V apart");
  kv->add_option("request_id", flags->request_id,
                 "the id that the client gave, or the one that `tandem generate --verbose` prints");
  kv->add_option("--file", flags->file,
                 "instead: a file that a worker wrote with --kv-dump; no router is asked");
  kv->add_option("--server,--router", flags->server, "host:port of the router")
      ->capture_default_str();
  kv->add_flag("--json", flags->json, "print one JSON object");
  AddClientTlsFlags(*kv, flags->tls);
  kv->footer(
      "Examples:\n"
      "  tandem inspect kv my-request\n"
      "  tandem inspect kv my-request --json\n"
      "  tandem inspect kv --file dumps/my-request.kv");
  kv->callback([flags, &chosen] { chosen = [flags] { return RunInspectKv(*flags); }; });
}

}  // namespace tandem
