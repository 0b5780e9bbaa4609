#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "fmt/format.h"
#include "server/commands/commands.h"

namespace tandem {
namespace {

// A command that takes any arguments and says which build has it.
void AddAbsentCommand(CLI::App& app, const std::string& name, Action& chosen) {
  CLI::App* command = app.add_subcommand(name, "Not in this build: `make build` adds it");
  command->fallthrough(false);  // else CLI11 looks for unknown flags in the parent command
  command->allow_extras();
  command->callback([name, &chosen] {
    chosen = [name] {
      return PrintError(
          Unimplemented("this tandem was built without its tools, as `make demo` does to be quick: "
                        "`make build` builds one that has `tandem {}` (CMake option TANDEM_TOOLS)",
                        name));
    };
  });
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action& chosen) { AddAbsentCommand(app, "bench", chosen); }

void AddCalibrateKvCommand(CLI::App& app, Action& chosen) {
  AddAbsentCommand(app, "calibrate-kv", chosen);
}

void AddCheckCommand(CLI::App& app, const std::shared_ptr<ConfigUse>&, Action& chosen) {
  AddAbsentCommand(app, "check", chosen);
}

void AddEvalCommand(CLI::App& app, Action& chosen) { AddAbsentCommand(app, "eval", chosen); }

void AddInspectCommand(CLI::App& app, Action& chosen) { AddAbsentCommand(app, "inspect", chosen); }

void AddProfileCommand(CLI::App& app, Action& chosen) { AddAbsentCommand(app, "profile", chosen); }

void AddSimulateCommand(CLI::App& app, Action& chosen) {
  AddAbsentCommand(app, "simulate", chosen);
}

}  // namespace tandem
