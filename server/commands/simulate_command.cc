#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/status.h"
#include "bench/simulator/simulate.h"
#include "router/admission/shedding.h"
#include "router/cluster/worker_costs.h"
#include "server/commands/bench_flags.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/load_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/tls_flags.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {
namespace {

// The flags of `tandem simulate` as they were typed.
struct SimulateFlags {
  BenchFlags load;
  simulator::SimulateOptions options;
  std::string costs_of;
  TlsFiles tls;  // for the connection to costs_of
  std::string route = "auto";
  double link_gb_per_s = 0;
  double hop_us = 100;
  int32_t heartbeat_ms = 500;
  std::string token_events = "auto";
  std::string prefix_cache = "on";
  std::string prefix_index = "on";
  std::string schedule = "fair";
  std::string shed = "off";
};

v1::Route SimulatedRoute(const std::string& name) {
  if (name == "unified") return v1::ROUTE_UNIFIED;
  return name == "disaggregated" ? v1::ROUTE_DISAGGREGATED : v1::ROUTE_AUTO;
}

absl::StatusOr<simulator::SimulateOptions> MakeSimulateOptions(const SimulateFlags& flags) {
  constexpr double kLongestHopUs = 1e7;
  constexpr double kFastestLink = 1e6;
  simulator::SimulateOptions options = flags.options;
  ASSIGN_OR_RETURN(options.load, MakeBenchOptions(flags.load));
  if (!(flags.link_gb_per_s >= 0 && flags.link_gb_per_s <= kFastestLink)) {
    return InvalidArgument("--link-gb-per-s={}: give a number above 0", flags.link_gb_per_s);
  }
  if (flags.link_gb_per_s > 0) {
    options.overrides.link = LinkModel{.bytes_per_second = flags.link_gb_per_s * 1e9};
  }
  if (!(flags.hop_us >= 0 && flags.hop_us <= kLongestHopUs)) {
    return InvalidArgument("--hop-us={}: give microseconds from 0 to {}", flags.hop_us,
                           kLongestHopUs);
  }
  simulator::SimulationOptions& simulation = options.simulation;
  simulation.network.hop = Duration(std::llround(flags.hop_us * 1e3));
  simulation.route = SimulatedRoute(flags.route);
  simulation.shedding = *ParseShedding(flags.shed);
  simulation.heartbeat = std::chrono::milliseconds(flags.heartbeat_ms);
  simulation.lease = 5 * simulation.heartbeat;
  simulation.limits.report_cache = flags.prefix_index == "on";
  simulation.limits.prefix_caching =
      flags.prefix_cache == "on" ? PrefixCaching::kOn : PrefixCaching::kOff;
  simulation.limits.scheduler.policy =
      flags.schedule == "fair" ? SchedulingPolicyKind::kFair : SchedulingPolicyKind::kDeadline;
  if (flags.token_events == "each") options.tokens = simulator::TokenReports::kEach;
  if (flags.token_events == "grouped") options.tokens = simulator::TokenReports::kGrouped;
  return options;
}

// The costs of steps that the workers of a running service report.
absl::StatusOr<std::vector<simulator::ServedCosts>> CostsOf(const std::string& server,
                                                            const TlsFiles& tls) {
  constexpr std::chrono::seconds kAnswerTimeout(5);
  Client client(server, tls);
  client.WaitUntilConnected(kAnswerTimeout);
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus(kAnswerTimeout);
  RETURN_IF_ERROR(Annotate(status.status(), fmt::format("--costs-of {}", server)));
  std::vector<simulator::ServedCosts> costs;
  for (const v1::WorkerStatus& worker : status->workers()) {
    if (!worker.load().has_cost()) continue;
    const auto read = ReadCosts(worker.load().cost());
    RETURN_IF_ERROR(Annotate(read.status(), fmt::format("--costs-of {}", server)));
    costs.push_back({worker.name(), worker.role(), (*read)->steps});
  }
  if (!costs.empty()) return costs;
  return Unavailable("--costs-of {}: no worker there has reported what its steps cost", server);
}

absl::Status RunSimulateCommand(const SimulateFlags& flags) {
  RETURN_IF_ERROR(SetUpLogging("error", "simulate"));
  ASSIGN_OR_RETURN(simulator::SimulateOptions options, MakeSimulateOptions(flags));
  if (!flags.costs_of.empty()) {
    ASSIGN_OR_RETURN(options.overrides.costs, CostsOf(flags.costs_of, flags.tls));
  }
  return RunSimulate(options);
}

void AddFleetFlags(CLI::App& simulate, SimulateFlags& flags) {
  const std::string group = "Fleet";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return simulate.add_option(name, value, help)->group(group);
  };
  simulator::SimulateOptions& options = flags.options;
  add("--fleet", options.fleet,
      "workers and their parameter files: prefill=4:h200.json,decode=12:h200.json")
      ->required();
  add("--model", options.overrides.model_dir,
      "directory of the model that was measured, for files of tandem profile, which do not say "
      "what "
      "KV it has");
  add("--kv-tokens", options.overrides.kv_tokens,
      "tokens in the KV pool of each worker; default: what the file says")
      ->check(Positive());
  add("--max-context", options.overrides.max_context_tokens,
      "tokens of prompt and output together; default: what the file or the model says")
      ->check(Positive());
  add("--link-gb-per-s", flags.link_gb_per_s,
      "rate between prefill and decode workers; default: the first link of the file");
  add("--costs-of", flags.costs_of,
      "host:port of a service that runs: steps take what its workers of the same names, or else "
      "roles, report of theirs at present, in the place of what the files say");
  AddClientTlsFlags(simulate, flags.tls);
  add("--disturb", options.disturbances,
      "lose:NAME@SECONDS (the process dies), leave:NAME@SECONDS (it drains) or "
      "slow:NAME@SECONDS:FACTOR; NAME as decode-3");
  simulate
      .add_flag("--find-capacity", options.find_capacity,
                "search for the fewest workers at which enough requests meet --goodput: unified "
                "alone, and the best split of prefill and decode; --fleet gives the most to try")
      ->group(group);
  add("--attainment", options.attainment, "share of good requests that is enough for that")
      ->capture_default_str();
}

void AddSimulatedRouterFlags(CLI::App& simulate, SimulateFlags& flags) {
  const std::string group = "Router and network";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return simulate.add_option(name, value, help)->capture_default_str()->group(group);
  };
  simulator::SimulationOptions& simulation = flags.options.simulation;
  add("--policy", simulation.policy, "how the router chooses workers; as of tandem router");
  add("--output-predictor", simulation.predictor,
      "how the router expects output lengths; as of tandem router");
  add("--route", flags.route, "auto, unified or disaggregated: what every request asks for")
      ->check(CLI::IsMember({"auto", "unified", "disaggregated"}));
  add("--max-in-flight", simulation.max_in_flight,
      "requests at the router; more are answered RESOURCE_EXHAUSTED")
      ->check(Positive());
  add("--shed", flags.shed,
      "which requests the router refuses because they are predicted to begin too late: off, "
      "deadline, slo; as of tandem router")
      ->check(
          CLI::IsMember(std::vector<std::string>(kSheddingNames.begin(), kSheddingNames.end())));
  add("--prefix-index", flags.prefix_index,
      "whether the router keeps an index of what workers have cached: on, off")
      ->check(CLI::IsMember({"on", "off"}));
  add("--heartbeat-ms", flags.heartbeat_ms, "how often workers report their load at least")
      ->check(CLI::Range(10, 3'600'000));
  add("--hop-us", flags.hop_us, "microseconds of a message from one process to another");
  add("--token-events", flags.token_events,
      "the router hears of each token, or of groups of up to 32; auto: each, in runs of up to 5 "
      "million tokens")
      ->check(CLI::IsMember({"auto", "each", "grouped"}));
}

void AddSimulatedWorkerFlags(CLI::App& simulate, SimulateFlags& flags) {
  const std::string group = "Workers";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return simulate.add_option(name, value, help)->capture_default_str()->group(group);
  };
  SchedulerOptions& scheduler = flags.options.simulation.limits.scheduler;
  add("--max-step-tokens", scheduler.max_step_tokens,
      "token budget of one step, decodes and prefill chunks together; 0: what the file says, or "
      "2048");
  add("--max-prefill-chunk", scheduler.max_prefill_chunk,
      "prompt tokens of one sequence in one step; 0: as the budget allows");
  add("--max-sequences", scheduler.max_sequences,
      "sequences computed together; 0: what the file says, or 256");
  add("--max-waiting", scheduler.max_waiting,
      "requests that may wait; more are answered RESOURCE_EXHAUSTED")
      ->check(Positive());
  add("--prefix-cache", flags.prefix_cache, "on, off")->check(CLI::IsMember({"on", "off"}));
  add("--schedule", flags.schedule, "among equal priorities: fair, deadline")
      ->check(CLI::IsMember({"fair", "deadline"}));
}

}  // namespace

void AddSimulateCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<SimulateFlags>();
  flags->load.backend = "simulated";
  flags->load.percentile_metrics = "ttft,tpot,itl,e2el";
  CLI::App* simulate = app.add_subcommand(
      "simulate", "Run router and schedulers on a virtual clock, with fleets from parameter files");
  AddFleetFlags(*simulate, *flags);
  AddSimulatedRouterFlags(*simulate, *flags);
  AddSimulatedWorkerFlags(*simulate, *flags);
  AddWorkloadFlags(*simulate, flags->load);
  AddArrivalFlags(*simulate, flags->load);
  AddMeasuringFlags(*simulate, flags->load);
  AddOutputFlags(*simulate, flags->load);
  simulate->add_flag("--json", flags->options.json, "print the result as JSON")->group("Output");
  simulate->footer(
      "Examples:\n"
      "  tandem simulate --fleet prefill=2:h200.json,decode=6:h200.json --request-rate 40 "
      "--num-prompts 10000\n"
      "  tandem simulate --fleet unified=64:h200.json,prefill=64:h200.json,decode=64:h200.json "
      "--find-capacity --request-rate 100 --goodput ttft:500 tpot:30");
  simulate->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunSimulateCommand(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
