// `tandem keys`: writes the access file of a router.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "fmt/ranges.h"
#include "router/cluster/registration_check.h"
#include "server/access/api_keys.h"
#include "server/commands/commands.h"
#include "server/commands/output_file.h"

namespace tandem {
namespace {

struct KeysFlags {
  std::string file;
  std::string id;
  std::string tenant;
  std::vector<std::string> scopes = {"generate"};
};

// Loads the access file; returns an empty one where there is no such file yet.
absl::StatusOr<AccessFile> LoadOrBegin(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return AccessFile();
  return AccessFile::Load(path);
}

absl::Status AddKey(const KeysFlags& flags) {
  RETURN_IF_ERROR(CheckName("--id", flags.id));
  RETURN_IF_ERROR(CheckName("--tenant", flags.tenant));
  ASSIGN_OR_RETURN(AccessFile file, LoadOrBegin(flags.file));
  ASSIGN_OR_RETURN(const std::string secret, NewSecret());
  ApiKey key{.id = flags.id, .sha256 = HashOfSecret(secret), .tenant = flags.tenant, .scopes = {}};
  for (const std::string& name : flags.scopes) {
    const auto at = std::ranges::find(kScopeNames, name);
    key.scopes.push_back(static_cast<Scope>(at - kScopeNames.begin()));
  }
  RETURN_IF_ERROR(file.Add(std::move(key)));
  RETURN_IF_ERROR(WriteWhole(flags.file, file.ToJson()));
  fmt::print("{}\n", secret);
  fmt::print(stderr,
             "added the key {} of tenant {} to {}, which has only its hash: this is the only time "
             "that the key is shown\n",
             flags.id, flags.tenant, flags.file);
  return absl::OkStatus();
}

absl::Status RemoveKey(const KeysFlags& flags) {
  ASSIGN_OR_RETURN(AccessFile file, AccessFile::Load(flags.file));
  RETURN_IF_ERROR(Annotate(file.Remove(flags.id), flags.file));
  RETURN_IF_ERROR(WriteWhole(flags.file, file.ToJson()));
  if (file.keys().empty()) {
    fmt::print(stderr,
               "{} has no key left: routers that run let nobody in, those that start with this "
               "file let everybody in\n",
               flags.file);
  }
  return absl::OkStatus();
}

absl::Status ListKeys(const KeysFlags& flags) {
  ASSIGN_OR_RETURN(const AccessFile file, AccessFile::Load(flags.file));
  fmt::print("{:<24} {:<24} {}\n", "id", "tenant", "scopes");
  for (const ApiKey& key : file.keys()) {
    std::vector<std::string_view> scopes;
    for (const Scope scope : key.scopes) scopes.push_back(kScopeNames[static_cast<size_t>(scope)]);
    fmt::print("{:<24} {:<24} {}\n", key.id, key.tenant, fmt::join(scopes, ","));
  }
  return absl::OkStatus();
}

using KeysAction = absl::Status (*)(const KeysFlags&);

CLI::App* AddKeysAction(CLI::App& keys, const char* name, const char* help, KeysAction action,
                        const std::shared_ptr<KeysFlags>& flags, Action& chosen) {
  CLI::App* command = keys.add_subcommand(name, help);
  command->add_option("file", flags->file, "the access file")->required();
  command->callback([action, flags, &chosen] {
    chosen = [action, flags] {
      const absl::Status status = action(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
  return command;
}

}  // namespace

void AddKeysCommand(CLI::App& app, Action& chosen) {
  CLI::App* keys = app.add_subcommand("keys", "Write the file of API keys of a router");
  keys->require_subcommand(1);
  const auto flags = std::make_shared<KeysFlags>();
  CLI::App* add = AddKeysAction(*keys, "add", "Make a key, print it once, and keep its hash",
                                &AddKey, flags, chosen);
  add->add_option("--id", flags->id, "names the key in the file and in logs")->required();
  add->add_option("--tenant", flags->tenant, "on whose account its requests are")->required();
  add->add_option("--scope", flags->scopes, "what it may do: generate, admin")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kScopeNames.begin(), kScopeNames.end())))
      ->capture_default_str();
  CLI::App* remove =
      AddKeysAction(*keys, "remove", "Let a key in no longer", &RemoveKey, flags, chosen);
  remove->add_option("--id", flags->id, "of the key")->required();
  AddKeysAction(*keys, "list", "Show what the file lets in", &ListKeys, flags, chosen);
  keys->footer(
      "Routers take changes of their --access-file while they run.\n"
      "Example:\n"
      "  tandem keys add access.json --id ci --tenant research\n"
      "  tandem router --model models/sample --access-file access.json\n"
      "  TANDEM_API_KEY=tdm-... tandem generate \"It was a fine morning\"");
}

}  // namespace tandem
