#include "server/check/check_router.h"

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/host_port.h"
#include "base/status.h"
#include "router/ledger/request_ledger.h"
#include "router/policy/policies.h"
#include "server/access/api_keys.h"
#include "server/admin/metrics_server.h"
#include "server/assembly/process_tls.h"
#include "server/assembly/router_options.h"
#include "server/check/check_tls.h"
#include "server/openai/model_files.h"

namespace tandem {
namespace {

constexpr char kPart[] = "router";

void CheckServedModel(const RouterProcessOptions& options, Findings& findings) {
  const absl::StatusOr<ServedModel> served = LoadServedModel(options);
  if (!findings.Check(kPart, served.status())) return;
  if (options.model_dir.empty()) return;  // a simulated service, which takes token ids only
  if (served->tokenizer == nullptr) {
    findings.Add(
        Severity::kWarning, kPart,
        fmt::format("\"{}\" has no tokenizer.json: prompts must be token ids, and the HTTP "
                    "API has no texts; copy the model's tokenizer.json there",
                    options.model_dir));
  }
  const openai::ModelFiles files =
      openai::LoadModelFiles(options.model_dir, options.tuning.parsers);
  if (files.chat == nullptr) {
    findings.Add(
        Severity::kWarning, kPart,
        fmt::format("chat completions will be refused: {}", std::string(files.no_chat.message())));
  }
}

absl::Status CheckPolicy(const RouterTuning& tuning) {
  ASSIGN_OR_RETURN(const PolicyOptions options, PolicyOptionsFor(tuning));
  const SteadyClock clock;
  RequestLedger ledger(clock);
  return NewRoutingPolicy(tuning.policy, {.clock = clock, .ledger = ledger, .options = options})
      .status();
}

void CheckAccess(const RouterProcessOptions& options, Findings& findings) {
  bool asks_for_keys = false;
  if (!options.access_file.empty()) {
    const absl::StatusOr<AccessFile> file = AccessFile::Load(options.access_file);
    if (!findings.Check(kPart, Annotate(file.status(), "--access-file"))) return;
    asks_for_keys = !file->keys().empty();
  }
  if (KindOfHost(options.host) == HostKind::kThisHost) return;
  if (!asks_for_keys && !options.require_client_certificates) {
    findings.Add(
        Severity::kWarning, kPart,
        fmt::format("--host {} is reached from other machines, and whoever reaches it may "
                    "send prompts: give --access-file with API keys (`tandem keys add`), or "
                    "--tls-clients require, or keep the ports within a network that you trust",
                    options.host));
  }
  if (options.tls.enabled()) return;
  findings.Add(Severity::kWarning, kPart,
               fmt::format("--host {} without TLS: whoever reaches the port may register as a "
                           "worker, and everything travels in the clear; `tandem certs` makes "
                           "certificates for --tls-cert, --tls-key and --tls-ca",
                           options.host));
}

void CheckRouterTls(const RouterProcessOptions& options, std::chrono::system_clock::time_point now,
                    Findings& findings) {
  const auto clients = options.require_client_certificates ? ClientCertificates::kRequired
                                                           : ClientCertificates::kOptional;
  // Opening them reads the files in the same way as the start of a router.
  ProcessTls tls;
  if (findings.Check(kPart, tls.OpenForRouter(options.tls, clients))) {
    CheckTls(options.tls,
             {.flags = "--tls", .part = kPart, .identity = NeededIdentity{{IdentityRole::kRouter}}},
             now, findings);
  }
  findings.Check(kPart, MetricsTlsFiles(options.metrics_tls, options.tls).status());
  const TlsFiles http = {.cert = options.http.tls.cert, .key = options.http.tls.key, .ca = {}};
  if (http.cert.empty() != http.key.empty()) {
    findings.Add(Severity::kError, kPart,
                 fmt::format("--http-tls-cert and --http-tls-key belong together: got \"{}\" and "
                             "\"{}\"; give both or neither",
                             http.cert, http.key));
    return;
  }
  CheckTls(http, {.flags = "--http-tls", .part = kPart, .identity = {}}, now, findings);
}

}  // namespace

void CheckRouter(const RouterProcessOptions& options, std::chrono::system_clock::time_point now,
                 Findings& findings) {
  findings.Check(kPart, CheckLease(options.tuning));
  CheckServedModel(options, findings);
  findings.Check(kPart, CheckPolicy(options.tuning));
  CheckAccess(options, findings);
  CheckRouterTls(options, now, findings);
}

}  // namespace tandem
