#include <chrono>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/status.h"
#include "fmt/format.h"
#include "server/check/check_deployment.h"
#include "server/check/check_report.h"
#include "server/commands/check_request.h"
#include "server/commands/commands.h"
#include "server/commands/number_flag.h"

namespace tandem {
namespace {

CheckReport ReportFor(const CheckFlags& flags) {
  Findings of_flags;
  const CheckRequest request = CheckRequestFor(flags, of_flags);
  CheckReport report = CheckDeployment(request, std::chrono::system_clock::now());
  for (const Finding& one : of_flags.all()) {
    report.findings.Add(one.severity, one.part, one.text);
  }
  return report;
}

int RunCheck(const CheckFlags& flags) {
  // Log lines would repeat what the report says, so logging is off.
  if (absl::Status status = SetUpLogging("off", "check"); !status.ok()) return PrintError(status);
  const CheckReport report = ReportFor(flags);
  fmt::print("{}", flags.json ? CheckJson(report) : CheckText(report));
  return report.findings.has_errors() ? kExitFailed : kExitOk;
}

void AddWorkloadFlags(CLI::App& app, Workload& workload) {
  const std::string group = "Workload, for which a number of workers is advised";
  app.add_option("--input-len", workload.input_tokens, "tokens of a prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str()
      ->group(group);
  app.add_option("--output-len", workload.output_tokens, "tokens of an output")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str()
      ->group(group);
  app.add_option("--request-rate", workload.requests_per_second, "requests per second")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddCheckCommand(CLI::App& app, const std::shared_ptr<ConfigUse>& config, Action& chosen) {
  auto flags = std::make_shared<CheckFlags>();
  flags->up.config = config;
  CLI::App* check = app.add_subcommand(
      "check", "Find what is wrong with a deployment, and say what it would take, without serving");
  check->add_flag("--json", flags->json, "print one JSON object");
  check->add_flag("--skip-ports", flags->skip_ports,
                  "do not ask whether ports are free, because the deployment runs already");
  check->add_option("--part", flags->parts,
                    "look at this process alone, as it would run here: router, a role, or the NAME "
                    "of a section [worker.name.NAME]; may be repeated; default: what `tandem up` "
                    "would start");
  AddWorkloadFlags(*check, flags->workload);
  const auto passed = AddUpFlags(*check, flags->up);
  check->footer(
      "Takes the flags and the --config of `tandem up`.\n"
      "Exit status: 0 all in order, maybe with warnings; 1 errors, all of which are printed.\n"
      "Example:\n"
      "  tandem check --config cluster.toml --input-len 2048 --request-rate 4");
  check->callback([flags, passed, &chosen] {
    flags->up.passed = passed();
    chosen = [flags] { return RunCheck(*flags); };
  });
}

}  // namespace tandem
