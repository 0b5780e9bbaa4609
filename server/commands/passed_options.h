#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace tandem {

// Options of one command that its child processes have as well.
using PassedOptions = std::vector<const CLI::Option*>;

// The options that `add` adds to `app`.
template <typename Add>
PassedOptions OptionsAddedBy(CLI::App& app, const Add& add) {
  const size_t before = app.get_options().size();
  add();
  const std::vector<CLI::Option*> all = app.get_options();
  return {all.begin() + static_cast<ptrdiff_t>(before), all.end()};
}

// Those among `options` that were given, on the command line or in a file, as arguments for a child
// process: "--name=value" for each value. Only once they have been parsed.
std::vector<std::string> GivenArguments(const PassedOptions& options);

}  // namespace tandem
