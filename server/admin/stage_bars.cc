#include "server/admin/stage_bars.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr std::string_view kPredicted = "░";
constexpr std::string_view kActual = "█";

std::string Repeat(std::string_view text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

// Draws consecutive spans of time, each of which begins where the one before it ended.
class Track {
 public:
  Track(std::string_view fill, double ms_per_cell) : fill_(fill), ms_per_cell_(ms_per_cell) {}

  // Draws the next span, at least one cell wide unless it takes no time.
  std::string Draw(double ms) {
    const int begin = Cell(at_ms_);
    at_ms_ += std::max(0.0, ms);
    if (ms <= 0) return "";
    return std::string(begin, ' ') + Repeat(fill_, std::max(1, Cell(at_ms_) - begin));
  }

 private:
  int Cell(double ms) const { return static_cast<int>(std::floor(ms / ms_per_cell_)); }

  const std::string_view fill_;
  const double ms_per_cell_;
  double at_ms_ = 0;
};

}  // namespace

std::string DrawBars(std::string_view title, std::span<const StageBar> stages, int columns) {
  double predicted_ms = 0;
  double actual_ms = 0;
  for (const StageBar& stage : stages) {
    predicted_ms += std::max(0.0, stage.predicted_ms.value_or(0));
    actual_ms += std::max(0.0, stage.actual_ms);
  }
  const double whole_ms = std::max(predicted_ms, actual_ms);
  if (!(whole_ms > 0) || !std::isfinite(whole_ms)) return "";
  constexpr int kLegendColumns = 38;  // width of the text before a bar
  constexpr int kFewestCells = 20;
  const int cells = std::max(kFewestCells, columns - kLegendColumns);
  Track predicted(kPredicted, whole_ms / cells);
  Track actual(kActual, whole_ms / cells);
  std::string text = fmt::format("{}: {:.3f} ms from left to right\n", title, whole_ms);
  for (const StageBar& stage : stages) {
    if (stage.predicted_ms) {
      text += fmt::format("  {:<10} predicted {:>11.3f} ms |{}\n", stage.name, *stage.predicted_ms,
                          predicted.Draw(*stage.predicted_ms));
    }
    text += fmt::format("  {:<10} {:<9} {:>11.3f} ms |{}\n", stage.predicted_ms ? "" : stage.name,
                        "actual", stage.actual_ms, actual.Draw(stage.actual_ms));
  }
  return text;
}

}  // namespace tandem
