#include "server/commands/passed_options.h"

#include "fmt/format.h"

namespace tandem {

std::vector<std::string> GivenArguments(const PassedOptions& options) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : options) {
    for (const std::string& value : option->results()) {
      arguments.push_back(fmt::format("--{}={}", option->get_lnames().front(), value));
    }
  }
  return arguments;
}

}  // namespace tandem
