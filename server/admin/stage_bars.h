#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// The predicted and the actual time of one stage of a request; stages follow one another in time.
struct StageBar {
  std::string_view name;
  std::optional<double> predicted_ms;
  double actual_ms = 0;
};

// Draws the stages as lines of text, `columns` wide: the bar of each stage begins where the one
// before it ended, with the predicted time above the actual one, both at the same scale.
std::string DrawBars(std::string_view title, std::span<const StageBar> stages, int columns);

}  // namespace tandem
