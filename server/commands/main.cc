#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/log_setup.h"
#include "base/process.h"
#include "base/retry_after.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "fmt/format.h"
#include "server/commands/child_process.h"
#include "server/commands/commands.h"
#include "server/commands/config_reader.h"

namespace tandem {

namespace {

// The status as "CODE: message" without line feeds.
std::string OneLine(const absl::Status& status) {
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  if (const auto after = RetryAfter(status)) {
    message += fmt::format(" (retry after {} ms)", after->count());
  }
  return fmt::format("{}: {}", absl::StatusCodeToString(status.code()), message);
}

}  // namespace

int PrintError(const absl::Status& status) {
  WriteErrorLine(OneLine(status));
  return kExitFailed;
}

int FailStart(int ready_fd, const absl::Status& status) {
  if (ready_fd < 0) return PrintError(status);
  TellFailure(ready_fd, OneLine(status));
  return kExitFailed;
}

namespace {

// Ends the process with an error line when an exception was not caught: where the system has no
// memory or no thread to give, the call throws on whichever thread made it.
[[noreturn]] void OnTerminate() {
  std::string why;
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    why = "no memory is left";
  } catch (const std::system_error& error) {
    why = error.what();
  } catch (...) {
  }
  if (why.empty()) std::abort();
  PrintError(ResourceExhausted(
      "the system gives this process no more memory or threads ({}): raise its limits (ulimit -v, "
      "ulimit -u, the container's) or give it smaller pools",
      why));
  _exit(kExitFailed);
}

int Main(int argc, char** argv) {
  CLI::App app("Tandem serves large language models with prefill and decode on separate workers.",
               "tandem");
  app.fallthrough();  // inherited by the commands: --config may stand after them
  const auto config = std::make_shared<ConfigUse>();
  Action chosen;
  AddUpCommand(app, config, chosen);
  AddCheckCommand(app, config, chosen);
  AddGenerateCommand(app, chosen);
  AddChatCommand(app, chosen);
  AddStatusCommand(app, chosen);
  AddExplainCommand(app, chosen);
  AddInspectCommand(app, chosen);
  AddKeysCommand(app, chosen);
  AddTokenizeCommand(app, chosen);
  AddChatTemplateCommand(app, chosen);
  AddBenchCommand(app, chosen);
  AddSimulateCommand(app, chosen);
  AddEvalCommand(app, chosen);
  AddDemoCommand(app, chosen);
  AddRouterCommand(app, chosen);
  AddWorkerCommand(app, chosen);
  AddProfileCommand(app, chosen);
  AddCalibrateKvCommand(app, chosen);
  AddCertsCommand(app, chosen);
  AddVersionCommand(app, chosen);
  app.require_subcommand(1);
  app.set_config("--config", "",
                 "read flags from a file with sections of all parts, as docs/configuration.md "
                 "explains; the command line counts more")
      ->type_name("FILE");
  app.config_formatter(std::make_shared<ConfigReader>(app, config));
  app.footer(
      "Start here:\n"
      "  tandem up --model models/sample\n"
      "  tandem generate \"It was a fine morning\"\n"
      "  tandem chat\n"
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
  // Without this, a worker that `tandem up` started from /proc/self/exe would be called "exe".
  tandem::NameThisThread("tandem");
  std::set_terminate(&tandem::OnTerminate);
  tandem::LockWithoutLookingForDeadlocks();
  return tandem::Main(argc, argv);
}
