#pragma once

#include <istream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "server/config/config_file.h"

namespace tandem {

// What --config means to a command that starts other processes, such as `tandem up`.
struct ConfigUse {
  std::optional<ConfigFile> file;  // nothing: none was given
  // The flags of `tandem up` that were given on its command line or in [up]; they beat the file's
  // sections for workers.
  std::set<std::string> explicit_flags;
};

// Reads the file of --config for CLI11: gives the command that was chosen the flags that its
// sections have and its command line has not. Throws CLI::ParseError, as CLI11 wants it, with the
// file and the line.
class ConfigReader : public CLI::Config {
 public:
  // `app` outlives this and has all its commands when it parses. `use` is filled then.
  ConfigReader(CLI::App& app, std::shared_ptr<ConfigUse> use) : app_(app), use_(std::move(use)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  std::string to_config(const CLI::App* app, bool defaults, bool descriptions,
                        std::string prefix) const override;

 private:
  void ReadFor(CLI::App& command, const std::string& name) const;

  CLI::App& app_;
  const std::shared_ptr<ConfigUse> use_;
};

// The flags of all commands that a file may have: those that --help shows.
KnownFlags FlagsOfCommands(const CLI::App& app);

}  // namespace tandem
