#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// One stage of a request; the stages of a picture follow one another in time.
struct StageBar {
  std::string_view name;
  std::optional<double> predicted_ms;
  double actual_ms = 0;
};

// A picture of the stages as lines of text, `columns` wide: each stage begins where the one before it
// ended, above it as predicted and below it as it came true. Both have the same scale.
std::string DrawBars(std::string_view title, std::span<const StageBar> stages, int columns);

}  // namespace tandem
