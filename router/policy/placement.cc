#include "router/policy/placement.h"

#include <iterator>

#include "fmt/format.h"

namespace tandem {

std::string ToText(const PlacementScore& score) {
  const bool is_time = score.unit == PlacementScore::Unit::kMilliseconds;
  std::string text = fmt::format("{}={}", is_time ? "cost_ms" : "cost", score.cost);
  for (const Feature& feature : score.features) {
    fmt::format_to(std::back_inserter(text), " {}={}", feature.name, feature.value);
  }
  return text;
}

}  // namespace tandem
