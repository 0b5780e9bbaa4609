#include "server/commands/passed_options.h"

#include "fmt/format.h"

namespace tandem {

FlagValues GivenAmong(const PassedOptions& options) {
  FlagValues flags;
  for (const CLI::Option* option : options) {
    if (!option->empty()) flags[option->get_lnames().front()] = option->results();
  }
  return flags;
}

void Replace(const FlagValues& more, FlagValues& flags) {
  for (const auto& [name, values] : more) flags[name] = values;
}

std::vector<std::string> ArgumentsOf(const FlagValues& flags) {
  std::vector<std::string> arguments;
  for (const auto& [name, values] : flags) {
    for (const std::string& value : values) {
      arguments.push_back(fmt::format("--{}={}", name, value));
    }
  }
  return arguments;
}

}  // namespace tandem
