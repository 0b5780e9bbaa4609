#include <algorithm>
#include <string>

#include "CLI/CLI.hpp"
#include "base/process.h"
#include "base/retry_after.h"
#include "base/thread_name.h"
#include "fmt/format.h"
#include "server/commands.h"

namespace tandem {

int PrintError(const absl::Status& status) {
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  if (const auto after = RetryAfter(status)) {
    message += fmt::format(" (retry after {} ms)", after->count());
  }
  fmt::print(stderr, "error: {}: {}\n", absl::StatusCodeToString(status.code()), message);
  return kExitFailed;
}

namespace {

int Main(int argc, char** argv) {
  CLI::App app("Tandem serves large language models with prefill and decode on separate workers.",
               "tandem");
  app.fallthrough();  // inherited by the commands: --config may stand after them
  Action chosen;
  AddUpCommand(app, chosen);
  AddGenerateCommand(app, chosen);
  AddStatusCommand(app, chosen);
  AddTokenizeCommand(app, chosen);
  AddDemoCommand(app, chosen);
  AddRouterCommand(app, chosen);
  AddWorkerCommand(app, chosen);
  AddVersionCommand(app, chosen);
  app.require_subcommand(1);
  app.set_config("--config", "", "read flags from a file: [worker] role=decode ...");
  app.footer(
      "Start here:\n"
      "  tandem up --model models/sample\n"
      "  tandem generate \"It was a fine morning\"\n"
      "  tandem status\n"
      "`tandem COMMAND --help` shows the flags of a command.\n"
      "Exit status: 0 done, 1 failed (one line on stderr says why), 2 wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return chosen();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  // Not "exe", as a worker that `tandem up` started would be called.
  tandem::NameThisThread("tandem");
  tandem::LockWithoutLookingForDeadlocks();
  return tandem::Main(argc, argv);
}
