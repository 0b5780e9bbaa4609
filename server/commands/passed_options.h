#pragma once

#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace tandem {

// Options of one command that its child processes have as well.
using PassedOptions = std::vector<const CLI::Option*>;

// Values of flags, by their long names without dashes.
using FlagValues = std::map<std::string, std::vector<std::string>>;

// The options that `add` adds to `app`.
template <typename Add>
PassedOptions OptionsAddedBy(CLI::App& app, const Add& add) {
  const size_t before = app.get_options().size();
  add();
  const std::vector<CLI::Option*> all = app.get_options();
  return {all.begin() + static_cast<ptrdiff_t>(before), all.end()};
}

// The flags among `options` that were given on the command line or in a file. To be called only
// after the command line has been parsed.
FlagValues GivenAmong(const PassedOptions& options);

// Puts the values of `more` into `flags`, in place of the values of the same flags.
void Replace(const FlagValues& more, FlagValues& flags);

// The flags as arguments of a process: "--name=value" for each value.
std::vector<std::string> ArgumentsOf(const FlagValues& flags);

}  // namespace tandem
