#include "router/output_length/output_length_predictor.h"

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

struct NamedPredictor {
  std::string_view name;
  std::unique_ptr<OutputLengthPredictor> (*make)();
};
constexpr NamedPredictor kPredictors[] = {
    {"adaptive", [] { return NewAdaptiveLengthPredictor(); }},
    {"window", NewWindowLengthPredictor},
};

}  // namespace

absl::StatusOr<std::unique_ptr<OutputLengthPredictor>> NewOutputLengthPredictor(
    std::string_view name) {
  for (const NamedPredictor& predictor : kPredictors) {
    if (predictor.name == name) return predictor.make();
  }
  return NotFound("predictor of output lengths {}: there is none of that name; choose one of {}",
                  name, fmt::join(OutputLengthPredictorNames(), ", "));
}

std::vector<std::string_view> OutputLengthPredictorNames() {
  std::vector<std::string_view> names;
  for (const NamedPredictor& predictor : kPredictors) names.push_back(predictor.name);
  return names;
}

}  // namespace tandem
