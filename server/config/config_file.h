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

// The long names of the flags of all commands, without dashes: "router" -> {"port", ...}. A command
// below another one is called as "bench.serve".
struct KnownFlags {
  std::map<std::string, std::set<std::string>> by_command;
  std::set<std::string> absent;  // commands of other builds, whose flags are not known
};

// The flags of a whole deployment, from one file (docs/configuration.md). Later sections of a list beat
// earlier ones:
//   a router          [shared] [router]
//   a worker          [shared] [worker] [worker.ROLE] [worker.name.NAME]
//   tandem up         [shared], what it has of [worker] and [router], [up]
//   other commands    the section with their name
// Immutable.
class ConfigFile {
 public:
  // INVALID_ARGUMENT names the file, the line, and the section, the key or the value at fault, with the
  // known name that is nearest.
  static absl::StatusOr<ConfigFile> Parse(const std::string& path, std::string_view text,
                                          const KnownFlags& known);

  const std::string& path() const { return path_; }

  // What the file says for a command but `worker` and `up`, each key once, with the line that counts.
  std::vector<ConfigEntry> ForCommand(const std::string& command) const;
  // For a worker of which the command line says `role` and `name`; either may be empty, and is then
  // what the file says.
  std::vector<ConfigEntry> ForWorker(std::string role, std::string name) const;

  // For `tandem up` itself.
  std::vector<ConfigEntry> ForUp() const;
  // For the router that it starts, without the flags that the command decides: its ports, and whether
  // the workers are simulated.
  std::vector<ConfigEntry> ForRouterOfUp() const;
  // For a worker that `tandem up` starts and calls `name`. The command says where its workers listen
  // and which router they have, so addresses are only taken from [worker.name.NAME], and role, name
  // and router from nowhere.
  std::vector<ConfigEntry> ForWorkerOfUp(const std::string& role, const std::string& name) const;
  // The names in sections [worker.name.NAME].
  std::vector<std::string> NamedWorkers() const;
  // The keys of [up] itself, which beat the sections of routers and workers.
  std::set<std::string> KeysOfUp() const;

 private:
  using Filter = std::function<bool(const std::string& key)>;
  struct Layer {
    std::string section;
    Filter takes = nullptr;  // null: every key
  };

  ConfigFile(std::string path, std::vector<ConfigSection> sections, const KnownFlags& known);
  const ConfigSection* Find(const std::string& name) const;
  // The only value of `key` in `section`, or "".
  std::string ValueOf(const std::string& section, const std::string& key) const;
  std::vector<ConfigEntry> Merged(const std::vector<Layer>& layers) const;

  std::string path_;
  std::vector<ConfigSection> sections_;
  std::set<std::string> flags_of_up_;
  std::set<std::string> flags_of_router_;
};

}  // namespace tandem
