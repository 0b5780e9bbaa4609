#include "bench/serving/goodput.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tandem::loadgen {

absl::StatusOr<Objectives> ParseObjectives(const std::vector<std::string>& words) {
  Objectives objectives;
  for (const std::string& word : words) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits(':', 1));
    double milliseconds = 0;
    if (!absl::SimpleAtod(parts.second, &milliseconds) || !(milliseconds > 0) ||
        std::isinf(milliseconds)) {
      return InvalidArgument(
          "--goodput {}: give NAME:MILLISECONDS with a time above 0, such as ttft:200", word);
    }
    std::optional<double>* objective = nullptr;
    if (parts.first == "ttft") objective = &objectives.ttft;
    if (parts.first == "tpot") objective = &objectives.tpot;
    if (parts.first == "e2el") objective = &objectives.e2e;
    if (objective == nullptr) {
      return InvalidArgument("--goodput {}: objectives are ttft, tpot and e2el", word);
    }
    if (objective->has_value()) {
      return InvalidArgument("--goodput {}: {} is given twice", word, parts.first);
    }
    *objective = milliseconds;
  }
  return objectives;
}

bool MeetsObjectives(const RequestLatency& latency, const Objectives& objectives) {
  if (!latency.scheduled_ttft) return false;
  if (objectives.ttft && *latency.scheduled_ttft > *objectives.ttft) return false;
  if (objectives.tpot && latency.tpot.value_or(0) > *objectives.tpot) return false;
  return !objectives.e2e || latency.scheduled_e2e <= *objectives.e2e;
}

}  // namespace tandem::loadgen
