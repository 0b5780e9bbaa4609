#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "fmt/format.h"
#include "server/commands/commands.h"

namespace tandem {
namespace {

// A command that takes any arguments and says which build has it.
void AddAbsentCommand(CLI::App& app, const std::string& name, const std::string& whole_name,
                      Action& chosen) {
  CLI::App* command = app.add_subcommand(name, "Not in this build: `make build` adds it");
  command->fallthrough(false);  // or flags that the command does not know are looked for above it
  command->allow_extras();
  command->callback([whole_name, &chosen] {
    chosen = [whole_name] {
      return PrintError(Unimplemented(
          "this tandem was built without its experiments, as `make demo` does to be quick: "
          "`make build` builds one that has `{}` (CMake option TANDEM_EXPERIMENTS)",
          whole_name));
    };
  });
}

}  // namespace

void AddEvalCommand(CLI::App& app, Action& chosen) {
  AddAbsentCommand(app, "eval", "tandem eval", chosen);
}

void AddSimulateCommand(CLI::App& app, Action& chosen) {
  AddAbsentCommand(app, "simulate", "tandem simulate", chosen);
}

void AddSweepCommand(CLI::App& bench, Action& chosen) {
  AddAbsentCommand(bench, "sweep", "tandem bench sweep", chosen);
}

void AddSloMapCommand(CLI::App& bench, Action& chosen) {
  AddAbsentCommand(bench, "slo-map", "tandem bench slo-map", chosen);
}

void AddCrossoverCommand(CLI::App& bench, Action& chosen) {
  AddAbsentCommand(bench, "crossover", "tandem bench crossover", chosen);
}

}  // namespace tandem
