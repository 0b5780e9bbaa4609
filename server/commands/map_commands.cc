// `tandem bench slo-map` and `tandem bench crossover`: maps of the routing policies on the virtual
// clock.

#include <memory>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "base/log.h"
#include "base/status.h"
#include "bench/serving/sweep_store.h"
#include "bench/simulator/crossover.h"
#include "bench/simulator/crossover_report.h"
#include "bench/simulator/slo_map.h"
#include "bench/simulator/slo_map_report.h"
#include "server/commands/commands.h"
#include "server/commands/number_flag.h"
#include "server/commands/sweep_flags.h"

namespace tandem {
namespace {

// Writes NAME.json, NAME.md and NAME.html into the folder.
absl::Status WriteMap(const loadgen::SweepStore& folder, const std::string& name,
                      const nlohmann::ordered_json& json, const std::string& markdown,
                      const std::string& html) {
  RETURN_IF_ERROR(folder.Write(name + ".json", JsonText(json) + "\n"));
  RETURN_IF_ERROR(folder.Write(name + ".md", markdown));
  return folder.Write(name + ".html", html);
}

struct SloMapFlags {
  SweepPlanFlags plan;
  SimulatedMachineFlags simulated;
  std::vector<double> ttft_ms = {100, 200, 300, 500, 1000, 2000};
  std::vector<double> tpot_ms = {8, 10, 15, 20, 30, 50};
  std::string out = "slo_map";
};

absl::Status RunSloMap(const SloMapFlags& flags) {
  RETURN_IF_ERROR(SetUpLogging("error", "slo-map"));
  simulator::SloMapPlan plan;
  ASSIGN_OR_RETURN(plan.sweep, MakeSweepPlan(flags.plan));
  ASSIGN_OR_RETURN(plan.machines, MakeSimulatedMachines(flags.simulated));
  plan.sweep.command = "tandem bench slo-map";
  plan.sweep.arguments = ArgumentsOf(flags.simulated);
  plan.ttft_ms = flags.ttft_ms;
  plan.tpot_ms = flags.tpot_ms;
  RETURN_IF_ERROR(Validate(plan));
  ASSIGN_OR_RETURN(const loadgen::SweepStore folder, loadgen::SweepStore::Open(flags.out));
  ASSIGN_OR_RETURN(const std::vector<simulator::SloMap> maps,
                   MakeSloMaps(plan, [](const simulator::SloMap& map) {
                     fmt::print("{}\n", LineOf(map));
                     std::fflush(stdout);
                   }));
  RETURN_IF_ERROR(WriteMap(folder, "slo_map", SloMapJson(plan, maps), SloMapMarkdown(plan, maps),
                           SloMapHtml(plan, maps)));
  fmt::print("report: slo_map.md, slo_map.html and slo_map.json in {}\n", flags.out);
  return absl::OkStatus();
}

struct CrossoverFlags {
  simulator::CrossoverPlan plan;
  SimulatedMachineFlags simulated;
  std::string out = "crossover";
};

absl::Status RunCrossoverCommand(const CrossoverFlags& flags) {
  RETURN_IF_ERROR(SetUpLogging("error", "crossover"));
  simulator::CrossoverPlan plan = flags.plan;
  plan.machines = flags.simulated.machines;
  RETURN_IF_ERROR(Validate(plan));
  ASSIGN_OR_RETURN(const loadgen::SweepStore folder, loadgen::SweepStore::Open(flags.out));
  ASSIGN_OR_RETURN(const std::vector<simulator::CrossoverCell> cells,
                   RunCrossover(plan, [](const simulator::CrossoverCell& cell) {
                     fmt::print("{}\n", LineOf(cell));
                     std::fflush(stdout);
                   }));
  RETURN_IF_ERROR(WriteMap(folder, "crossover", CrossoverJson(plan, cells),
                           CrossoverMarkdown(plan, cells), CrossoverHtml(plan, cells)));
  fmt::print("regret {:.2f}%; report: crossover.md, crossover.html and crossover.json in {}\n",
             simulator::RegretPercent(cells), flags.out);
  return absl::OkStatus();
}

template <typename Flags>
void AddMeasuredModelFlag(CLI::App& command, Flags& flags) {
  command
      .add_option("--model", flags.simulated.machines.overrides.model_dir,
                  "the model that was measured, for a file of tandem profile")
      ->group("Simulation");
}

}  // namespace

void AddSloMapCommand(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<SloMapFlags>();
  CLI::App* map = bench.add_subcommand("slo-map",
                                       "Show under which objectives which strategy is best, on a "
                                       "virtual clock: a heat map over TTFT "
                                       "and TPOT for each load");
  AddSimulatedMachineFlags(*map, flags->simulated)->required();
  AddSimulatedLinkFlag(*map, flags->simulated);
  AddMeasuredModelFlag(*map, *flags);
  AddSweepPlanFlags(*map, flags->plan);
  map->add_option("--ttft", flags->ttft_ms, "objectives of TTFT in ms, ascending")
      ->delimiter(',')
      ->capture_default_str();
  map->add_option("--tpot", flags->tpot_ms, "objectives of TPOT in ms, ascending")
      ->delimiter(',')
      ->capture_default_str();
  map->add_option("--out", flags->out, "folder of the report")->capture_default_str();
  map->footer(
      "Example:\n"
      "  tandem bench slo-map --simulate models/simulated/qwen3-8b-h200.json --context 8192 "
      "--workloads mixed --rates 30");
  map->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunSloMap(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

void AddCrossoverCommand(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<CrossoverFlags>();
  simulator::CrossoverPlan& plan = flags->plan;
  plan.links_gb_per_s = {0.02, 0.1, 0.5, 2, 5, 20, 50};
  plan.prompts = {256, 1024, 4096, 16384};
  plan.loads = {0.1, 0.4, 0.8};
  CLI::App* crossover = bench.add_subcommand(
      "crossover",
      "Show which route a policy takes as link, prompt and load vary, on a virtual clock, and what "
      "it loses against an oracle");
  AddSimulatedMachineFlags(*crossover, flags->simulated)->required();
  AddMeasuredModelFlag(*crossover, *flags);
  const auto add = [crossover](const char* name, auto& value, const char* help) {
    return crossover->add_option(name, value, help)->capture_default_str();
  };
  add("--policy", plan.policy, "how the router chooses workers; as of tandem router");
  add("--links", plan.links_gb_per_s,
      "GB/s from the prefill to the decode worker in bytes of the model, ascending")
      ->delimiter(',');
  add("--prompts", plan.prompts, "tokens of a prompt, ascending")->delimiter(',');
  add("--loads", plan.loads,
      "shares of its time for which one worker would compute prompts if it got all, ascending")
      ->delimiter(',');
  add("--output-len", plan.output_tokens, "tokens of an output");
  add("--num-prompts", plan.requests, "requests of each cell at least, and those of 5 seconds");
  add("--samples", plan.samples, "of these are replayed on both routes; 0: no oracle");
  add("--seed", plan.seed, "of the schedules");
  add("--out", flags->out, "folder of the report");
  crossover->footer(
      "Example:\n"
      "  tandem bench crossover --simulate models/simulated/qwen3-8b-h200.json --samples 50");
  crossover->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunCrossoverCommand(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
