#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace tandem {

struct ConfigUse;

// What the command line chose; returns the exit status of the process.
using Action = std::function<int()>;

// Each AddXCommand function adds one subcommand, which sets `chosen` when it is on the command
// line. `config` is filled while the command line is parsed.
void AddUpCommand(CLI::App& app, const std::shared_ptr<ConfigUse>& config, Action& chosen);
void AddCheckCommand(CLI::App& app, const std::shared_ptr<ConfigUse>& config, Action& chosen);
void AddRouterCommand(CLI::App& app, Action& chosen);
void AddWorkerCommand(CLI::App& app, Action& chosen);
void AddGenerateCommand(CLI::App& app, Action& chosen);
void AddChatCommand(CLI::App& app, Action& chosen);
void AddTokenizeCommand(CLI::App& app, Action& chosen);
void AddChatTemplateCommand(CLI::App& app, Action& chosen);
void AddStatusCommand(CLI::App& app, Action& chosen);
void AddExplainCommand(CLI::App& app, Action& chosen);
void AddInspectCommand(CLI::App& app, Action& chosen);
void AddKeysCommand(CLI::App& app, Action& chosen);
void AddDemoCommand(CLI::App& app, Action& chosen);
void AddEvalCommand(CLI::App& app, Action& chosen);
void AddProfileCommand(CLI::App& app, Action& chosen);
void AddCalibrateKvCommand(CLI::App& app, Action& chosen);
void AddBenchCommand(CLI::App& app, Action& chosen);
// Adds `sweep` below the command `bench`.
void AddSweepCommand(CLI::App& bench, Action& chosen);
void AddSloMapCommand(CLI::App& bench, Action& chosen);
void AddCrossoverCommand(CLI::App& bench, Action& chosen);
void AddSimulateCommand(CLI::App& app, Action& chosen);
void AddCertsCommand(CLI::App& app, Action& chosen);
void AddVersionCommand(CLI::App& app, Action& chosen);

// Where a router listens and a client connects by default.
inline constexpr uint16_t kDefaultPort = 8080;
inline constexpr char kDefaultServer[] = "127.0.0.1:8080";

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Prints "error: CODE: message" on one line of stderr. Returns kExitFailed.
int PrintError(const absl::Status& status);
// Reports that a process cannot start, and returns kExitFailed. Where a parent waits for
// `ready_fd`, the error goes to that descriptor alone, because the parent prints one line for all
// its children; otherwise to stderr.
int FailStart(int ready_fd, const absl::Status& status);

}  // namespace tandem
