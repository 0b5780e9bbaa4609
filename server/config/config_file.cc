#include "server/config/config_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/config/nearest_name.h"

namespace tandem {
namespace {

constexpr char kShared[] = "shared";
constexpr char kWorker[] = "worker";
constexpr char kRouter[] = "router";
constexpr char kUp[] = "up";
constexpr std::string_view kNamed = "worker.name.";
const std::set<std::string>& RoleSections() {
  static const std::set<std::string> sections = {"worker.prefill", "worker.decode",
                                                 "worker.unified"};
  return sections;
}

// The flags that say where a worker listens, and how others reach it.
const std::set<std::string>& AddressKeys() {
  static const std::set<std::string> keys = {"host",      "port",           "data-port",
                                             "advertise", "advertise-data", "metrics-port"};
  return keys;
}

const std::set<std::string>& FlagsOf(const KnownFlags& known, std::string_view command) {
  static const std::set<std::string> none;
  const auto found = known.by_command.find(std::string(command));
  return found == known.by_command.end() ? none : found->second;
}

bool IsNamed(std::string_view section) {
  return section.starts_with(kNamed) && section.size() > kNamed.size();
}

std::set<std::string> Without(std::set<std::string> flags, const std::string& flag) {
  flags.erase(flag);
  return flags;
}

// The flags that a section may set.
std::set<std::string> FlagsIn(const std::string& section, const KnownFlags& known) {
  const std::set<std::string>& of_worker = FlagsOf(known, kWorker);
  if (RoleSections().contains(section)) return Without(of_worker, "role");
  if (IsNamed(section)) return Without(of_worker, "name");
  if (section != kShared) return FlagsOf(known, section);
  std::set<std::string> both;
  std::ranges::set_intersection(of_worker, FlagsOf(known, kRouter),
                                std::inserter(both, both.end()));
  return both;
}

// Advice for a key that its section does not have: where it belongs, or which known key is similar.
std::string AdviceFor(const std::string& key, const std::string& section, const KnownFlags& known) {
  if (key == "role" && RoleSections().contains(section)) {
    return ": the name of the section is the role";
  }
  if (key == "name" && IsNamed(section)) return ": the name of the section is the name";
  if (section == kShared) {
    for (const char* part : {kWorker, kRouter}) {
      if (FlagsOf(known, part).contains(key)) {
        return fmt::format(
            ", which is for flags that routers and workers both have: put it below [{}]", part);
      }
    }
  }
  const std::string advice = DidYouMean(key, FlagsIn(section, known), "");
  if (!advice.empty()) return advice;
  for (const char* part : {kRouter, kWorker, kUp}) {
    if (FlagsOf(known, part).contains(key)) return fmt::format(": put it below [{}]", part);
  }
  const size_t dot = section.find('.');
  const std::string command = section == kShared ? kRouter : section.substr(0, dot);
  return fmt::format(": `tandem {} --help` lists all flags", command);
}

absl::Status CheckSection(const ConfigSection& section, const KnownFlags& known) {
  const bool is_known = section.name == kShared || RoleSections().contains(section.name) ||
                        IsNamed(section.name) || known.by_command.contains(section.name);
  if (known.absent.contains(section.name)) return absl::OkStatus();
  if (!is_known) {
    std::set<std::string> names = RoleSections();
    names.insert(kShared);
    for (const auto& [command, flags] : known.by_command) names.insert(command);
    return InvalidArgument(
        "line {}: there is no section [{}]{}", section.line, section.name,
        DidYouMean(
            section.name, names,
            ": there are [shared], [router], [worker], [worker.ROLE], [worker.name.NAME], [up], "
            "and one for each other command"));
  }
  const std::set<std::string> flags = FlagsIn(section.name, known);
  for (const ConfigEntry& entry : section.entries) {
    if (flags.contains(entry.key)) continue;
    return InvalidArgument("line {}: [{}] has no flag \"{}\"{}", entry.line, section.name,
                           entry.key, AdviceFor(entry.key, section.name, known));
  }
  return absl::OkStatus();
}

}  // namespace

ConfigFile::ConfigFile(std::string path, std::vector<ConfigSection> sections,
                       const KnownFlags& known)
    : path_(std::move(path)),
      sections_(std::move(sections)),
      flags_of_up_(FlagsOf(known, kUp)),
      flags_of_router_(FlagsOf(known, kRouter)) {}

absl::StatusOr<ConfigFile> ConfigFile::Parse(const std::string& path, std::string_view text,
                                             const KnownFlags& known) {
  absl::StatusOr<std::vector<ConfigSection>> sections = ParseConfigText(text);
  absl::Status status = sections.status();
  for (size_t i = 0; status.ok() && i < sections->size(); ++i) {
    status = CheckSection((*sections)[i], known);
  }
  RETURN_IF_ERROR(Annotate(status, path));
  return ConfigFile(path, *std::move(sections), known);
}

const ConfigSection* ConfigFile::Find(const std::string& name) const {
  const auto found = std::ranges::find(sections_, name, &ConfigSection::name);
  return found == sections_.end() ? nullptr : &*found;
}

std::string ConfigFile::ValueOf(const std::string& section, const std::string& key) const {
  const ConfigSection* found = Find(section);
  if (found == nullptr) return "";
  const auto entry = std::ranges::find(found->entries, key, &ConfigEntry::key);
  return entry == found->entries.end() || entry->values.size() != 1 ? "" : entry->values.front();
}

std::vector<ConfigEntry> ConfigFile::Merged(const std::vector<Layer>& layers) const {
  std::map<std::string, ConfigEntry> merged;
  for (const Layer& layer : layers) {
    const ConfigSection* section = Find(layer.section);
    if (section == nullptr) continue;
    for (const ConfigEntry& entry : section->entries) {
      if (layer.takes == nullptr || layer.takes(entry.key)) merged[entry.key] = entry;
    }
  }
  std::vector<ConfigEntry> entries;
  entries.reserve(merged.size());
  for (auto& [key, entry] : merged) entries.push_back(std::move(entry));
  return entries;
}

std::vector<ConfigEntry> ConfigFile::ForCommand(const std::string& command) const {
  if (command == kRouter) return Merged({{kShared}, {kRouter}});
  return Merged({{command}});
}

std::vector<ConfigEntry> ConfigFile::ForWorker(std::string role, std::string name) const {
  if (name.empty()) name = ValueOf(kWorker, "name");
  if (role.empty() && !name.empty()) role = ValueOf(std::string(kNamed) + name, "role");
  if (role.empty()) role = ValueOf(kWorker, "role");
  if (name.empty()) name = ValueOf("worker." + role, "name");
  return Merged({{kShared}, {kWorker}, {"worker." + role}, {std::string(kNamed) + name}});
}

std::vector<ConfigEntry> ConfigFile::ForUp() const {
  const Filter of_up = [this](const std::string& key) { return flags_of_up_.contains(key); };
  const Filter of_workers_alone = [this](const std::string& key) {
    return flags_of_up_.contains(key) && !flags_of_router_.contains(key);
  };
  // `tandem up` takes these flags from [up] and [shared] alone, because every process has them for
  // itself.
  const Filter of_router = [of_up](const std::string& key) {
    return of_up(key) && key != "log-level" && key != "log-format" && key != "trace-file" &&
           key != "drain-seconds";
  };
  return Merged({{kShared, of_up}, {kWorker, of_workers_alone}, {kRouter, of_router}, {kUp}});
}

std::vector<ConfigEntry> ConfigFile::ForRouterOfUp() const {
  const Filter usual = [](const std::string& key) {
    return key != "port" && key != "http-port" && key != "simulated";
  };
  return Merged({{kShared, usual}, {kRouter, usual}});
}

std::vector<ConfigEntry> ConfigFile::ForWorkerOfUp(const std::string& role,
                                                   const std::string& name) const {
  const Filter named = [](const std::string& key) {
    return key != "role" && key != "name" && key != "router";
  };
  const Filter usual = [named](const std::string& key) {
    return named(key) && !AddressKeys().contains(key);
  };
  return Merged({{kShared, usual},
                 {kWorker, usual},
                 {"worker." + role, usual},
                 {std::string(kNamed) + name, named}});
}

std::vector<std::string> ConfigFile::NamedWorkers() const {
  std::vector<std::string> names;
  for (const ConfigSection& section : sections_) {
    if (IsNamed(section.name)) names.push_back(section.name.substr(kNamed.size()));
  }
  return names;
}

std::set<std::string> ConfigFile::KeysOfUp() const {
  std::set<std::string> keys;
  if (const ConfigSection* up = Find(kUp)) {
    for (const ConfigEntry& entry : up->entries) keys.insert(entry.key);
  }
  return keys;
}

}  // namespace tandem
