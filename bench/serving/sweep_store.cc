#include "bench/serving/sweep_store.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/json.h"
#include "base/status.h"

namespace tandem::loadgen {
namespace {

using Json = nlohmann::ordered_json;

// The first member that differs, with both values; empty when none does.
std::string Difference(const Json& saved, const Json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    const auto found = saved.find(name);
    if (found == saved.end()) return fmt::format("it has no {}", name);
    if (*found != value) {
      return fmt::format("its {} is {} and not {}", name, JsonText(*found), JsonText(value));
    }
  }
  return {};
}

}  // namespace

absl::StatusOr<SweepStore> SweepStore::Open(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) == 0) return SweepStore(folder);
  return InvalidArgument("--out={}: the folder cannot be made or written", folder);
}

absl::StatusOr<std::optional<Json>> SweepStore::Find(const SweepPlan& plan, const SweepPoint& point,
                                                     const std::string& schedule_hash) const {
  const std::string path = PathOf(FileNameOf(point));
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  Json saved = ParseOrderedJson(text.str()).value;
  std::string difference = "it is no result of a sweep";
  if (saved.is_object() && saved.contains("point") && saved.contains("schedule_hash") &&
      saved.contains("result") && saved["point"].is_object() && saved["result"].is_object()) {
    difference = Difference(saved["point"], KeyOf(plan, point));
    if (difference.empty() && saved["schedule_hash"] != schedule_hash) {
      difference = fmt::format("it ran schedule {} and not {}", JsonText(saved["schedule_hash"]),
                               schedule_hash);
    }
  }
  if (difference.empty()) return saved["result"];
  return FailedPrecondition("{} belongs to another sweep: {}. Give another --out, or delete it",
                            path, difference);
}

absl::Status SweepStore::Save(const SweepPlan& plan, const SweepPoint& point,
                              const std::string& schedule_hash, const Json& result) const {
  const Json file = {
      {"point", KeyOf(plan, point)}, {"schedule_hash", schedule_hash}, {"result", result}};
  return Write(FileNameOf(point), JsonText(file, 1) + "\n");
}

absl::Status SweepStore::Write(const std::string& name, const std::string& text) const {
  const std::string path = PathOf(name);
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (file && !error) return absl::OkStatus();
  return Internal("{} cannot be written", path);
}

}  // namespace tandem::loadgen
