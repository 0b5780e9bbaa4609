#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "bench/serving/sweep_plan.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {

// The raw results of a sweep: a folder with one JSON file per point, which holds the point's key,
// the hash of its schedule and its result (JsonReport). A file is there as a whole or not at all,
// so a sweep that was interrupted goes on where it stopped.
class SweepStore {
 public:
  // Creates the folder. INVALID_ARGUMENT when that is not possible.
  static absl::StatusOr<SweepStore> Open(const std::string& folder);

  // The result of the point, if it was saved. FAILED_PRECONDITION when its file belongs to another
  // plan or another schedule: names the first difference. Nothing is ever overwritten.
  absl::StatusOr<std::optional<nlohmann::ordered_json>> Find(
      const SweepPlan& plan, const SweepPoint& point, const std::string& schedule_hash) const;
  absl::Status Save(const SweepPlan& plan, const SweepPoint& point,
                    const std::string& schedule_hash, const nlohmann::ordered_json& result) const;
  // A file beside the results, replaced as a whole.
  absl::Status Write(const std::string& name, const std::string& text) const;

 private:
  explicit SweepStore(std::string folder) : folder_(std::move(folder)) {}
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

}  // namespace tandem::loadgen
