#include "server/commands/config_reader.h"

#include <algorithm>
#include <iterator>

#include "absl/status/statusor.h"
#include "fmt/format.h"

namespace tandem {
namespace {

[[noreturn]] void Refuse(const std::string& path, const ConfigEntry& entry,
                         const std::string& why) {
  throw CLI::ConfigError(fmt::format("{}: line {}: {}", path, entry.line, why));
}

bool IsSwitch(const CLI::Option& option) { return option.get_expected_min() == 0; }

// Whether the command line has this option, or one that cannot stand beside it.
bool IsBeaten(const CLI::Option& option, const std::set<const CLI::Option*>& on_command_line) {
  if (on_command_line.contains(&option)) return true;
  const auto excluded = option.get_excludes();
  return std::ranges::any_of(excluded,
                             [&](const CLI::Option* one) { return on_command_line.contains(one); });
}

void CheckForm(const CLI::Option& option, const ConfigEntry& entry, const std::string& path) {
  const std::string& first = entry.values.empty() ? "" : entry.values.front();
  if (entry.values.size() != 1 && option.get_items_expected_max() == 1) {
    Refuse(path, entry,
           fmt::format("{} takes one value, and has a list of {}", entry.key, entry.values.size()));
  }
  if (IsSwitch(option) && (entry.values.size() != 1 || (first != "true" && first != "false"))) {
    Refuse(path, entry, fmt::format("{} = {}: give true or false", entry.key, first));
  }
}

void Give(CLI::Option& option, const ConfigEntry& entry, const std::string& path) {
  CheckForm(option, entry, path);
  // CLI11 counts a switch as given even if its value is false, and would then refuse the options
  // that it excludes.
  if (IsSwitch(option) && entry.values.front() == "false" && !option.get_excludes().empty()) return;
  try {
    if (IsSwitch(option)) {
      option.add_result(option.get_flag_value(entry.key, entry.values.front()));
    } else {
      option.add_result(entry.values);
    }
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    Refuse(path, entry, error.what());
  }
}

std::string ValueOf(const CLI::App& command, const std::string& flag) {
  const CLI::Option* option = command.get_option_no_throw(flag);
  return option == nullptr || option->empty() ? "" : option->results().front();
}

void AddFlagsOf(const CLI::App& command, const std::string& name, KnownFlags& known) {
  if (command.get_allow_extras()) {
    known.absent.insert(name);
    return;
  }
  std::set<std::string>& flags = known.by_command[name];
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_configurable() || option->get_group().empty()) continue;
    for (const std::string& one : option->get_lnames()) flags.insert(one);
  }
  for (const CLI::App* below : command.get_subcommands(nullptr)) {
    AddFlagsOf(*below, fmt::format("{}.{}", name, below->get_name()), known);
  }
}

}  // namespace

KnownFlags FlagsOfCommands(const CLI::App& app) {
  KnownFlags known;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    AddFlagsOf(*command, command->get_name(), known);
  }
  return known;
}

void ConfigReader::ReadFor(CLI::App& command, const std::string& name) const {
  const ConfigFile& file = *use_->file;
  std::set<const CLI::Option*> on_command_line;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->empty()) on_command_line.insert(option);
  }
  std::vector<ConfigEntry> entries = file.ForCommand(name);
  if (name == "worker")
    entries = file.ForWorker(ValueOf(command, "--role"), ValueOf(command, "--name"));
  if (name == "up" || name == "check") {
    // What [check] says beats what the file says to `tandem up`, as a command line would.
    const std::vector<ConfigEntry> of_up = file.ForUp();
    entries.insert(entries.end(), of_up.begin(), of_up.end());
    use_->explicit_flags = file.KeysOfUp();
    for (const ConfigEntry& entry : file.ForCommand("check")) {
      if (name == "check") use_->explicit_flags.insert(entry.key);
    }
    for (const CLI::Option* option : on_command_line) {
      use_->explicit_flags.insert(option->get_lnames().begin(), option->get_lnames().end());
    }
  }
  std::set<std::string> given;
  for (const ConfigEntry& entry : entries) {
    if (!given.insert(entry.key).second) continue;
    CLI::Option* option = command.get_option_no_throw("--" + entry.key);
    if (option == nullptr || IsBeaten(*option, on_command_line)) continue;
    Give(*option, entry, file.path());
  }
}

std::vector<CLI::ConfigItem> ConfigReader::from_config(std::istream& input) const {
  const std::string path = app_.get_config_ptr()->results().front();
  std::string text(kMostConfigBytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(input.gcount()));
  absl::StatusOr<ConfigFile> file = ConfigFile::Parse(path, text, FlagsOfCommands(app_));
  if (!file.ok()) throw CLI::ConfigError(std::string(file.status().message()));
  use_->file = *std::move(file);
  std::string name;
  for (std::vector<CLI::App*> chosen = app_.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    name += (name.empty() ? "" : ".") + chosen.front()->get_name();
    ReadFor(*chosen.front(), name);
  }
  return {};  // CLI11 has nothing left to set: ReadFor has set every option
}

// Part of CLI11's interface; Tandem writes no configuration files.
std::string ConfigReader::to_config(const CLI::App* /*app*/, bool /*defaults*/,
                                    bool /*descriptions*/, std::string /*prefix*/) const {
  return "";
}

}  // namespace tandem
