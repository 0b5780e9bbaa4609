#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/config_text.h"

namespace tandem {

// The flags of all commands by their long names, without dashes: "router" -> {"port", ...}. A
// subcommand is named with its parent, such as "bench.serve".
struct KnownFlags {
  std::map<std::string, std::set<std::string>> by_command;
  std::set<std::string> absent;  // commands that this build lacks, whose flags are unknown
};

// The flags of a whole deployment, read from one file (docs/configuration.md). Each kind of process
// merges sections, where later ones override earlier ones:
//   a router          [shared] [router]
//   a worker          [shared] [worker] [worker.ROLE] [worker.name.NAME]
//   tandem up         [shared], what it has of [worker] and [router], [up]
//   other commands    the section with their name
// Immutable.
class ConfigFile {
 public:
  // Parses the text of the file at `path`. INVALID_ARGUMENT names the file, the line, and the
  // section, the key or the value at fault, with the most similar known name.
  static absl::StatusOr<ConfigFile> Parse(const std::string& path, std::string_view text,
                                          const KnownFlags& known);

  const std::string& path() const { return path_; }

  // The entries for a command other than `worker` and `up`: each key once, with the line that takes
  // effect.
  std::vector<ConfigEntry> ForCommand(const std::string& command) const;
  // The entries for a worker whose command line gives `role` and `name`; either may be empty, and
  // is then taken from the file.
  std::vector<ConfigEntry> ForWorker(std::string role, std::string name) const;

  // The entries for the command `tandem up` itself.
  std::vector<ConfigEntry> ForUp() const;
  // The entries for the router that `tandem up` starts, without the flags that the command decides:
  // its ports, and whether the workers are simulated.
  std::vector<ConfigEntry> ForRouterOfUp() const;
  // The entries for a worker that `tandem up` starts and names `name`. The command decides where
  // its workers listen and which router they have, so addresses are only taken from
  // [worker.name.NAME], and role, name and router from nowhere.
  std::vector<ConfigEntry> ForWorkerOfUp(const std::string& role, const std::string& name) const;
  // The names NAME of all sections [worker.name.NAME].
  std::vector<std::string> NamedWorkers() const;
  // The keys of section [up], which override the sections of routers and workers.
  std::set<std::string> KeysOfUp() const;

 private:
  using Filter = std::function<bool(const std::string& key)>;
  struct Layer {
    std::string section;
    Filter takes = nullptr;  // whether it uses a key; null: every key
  };

  ConfigFile(std::string path, std::vector<ConfigSection> sections, const KnownFlags& known);
  const ConfigSection* Find(const std::string& name) const;
  // The value of `key` in `section` when it has exactly one, else "".
  std::string ValueOf(const std::string& section, const std::string& key) const;
  std::vector<ConfigEntry> Merged(const std::vector<Layer>& layers) const;

  std::string path_;
  std::vector<ConfigSection> sections_;
  std::set<std::string> flags_of_up_;
  std::set<std::string> flags_of_router_;
};

}  // namespace tandem
