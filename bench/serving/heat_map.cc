#include "bench/serving/heat_map.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "bench/serving/svg_plot.h"
#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

constexpr double kCellWidth = 92;
constexpr double kCellHeight = 26;
constexpr double kRowLabels = 90;
constexpr double kAbove = 40;
constexpr double kBelow = 58;

std::string ColorOf(double value) {
  if (!std::isfinite(value)) return "#dddddd";
  constexpr int kWhite = 255;
  constexpr int kRed[] = {238, 102, 119};
  constexpr int kBlue[] = {102, 153, 204};
  const double share = std::clamp(std::abs(value), 0.0, 1.0);
  const int(&full)[3] = value < 0 ? kRed : kBlue;
  const auto mix = [share](int color) {
    return static_cast<int>(std::lround(kWhite + share * (color - kWhite)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(full[0]), mix(full[1]), mix(full[2]));
}

std::string CenteredText(double x, double y, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x, y,
                     EscapeHtml(text));
}

std::string CellSvg(const HeatCell& cell, double x, double y) {
  return fmt::format(
             "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" "
             "fill=\"{}\" stroke=\"#fff\"/>\n",
             EscapeHtml(cell.detail), x, y, kCellWidth, kCellHeight, ColorOf(cell.value)) +
         CenteredText(x + kCellWidth / 2, y + kCellHeight / 2 + 4, cell.text) + "</g>\n";
}

}  // namespace

std::string RenderHeatMap(const HeatMap& map) {
  TANDEM_CHECK(map.cells.size() == map.rows.size() * map.columns.size(),
               "a heat map has a cell for each row and column");
  const double width = kRowLabels + kCellWidth * static_cast<double>(map.columns.size()) + 20;
  const double bottom = kAbove + kCellHeight * static_cast<double>(map.rows.size());
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<title>{2}</title>\n<text x=\"8\" y=\"14\" class=\"title\">{2}</text>\n"
      "<text x=\"8\" y=\"32\">{3}</text>\n",
      width, bottom + kBelow, EscapeHtml(map.title), EscapeHtml(map.y_label));
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = kAbove + kCellHeight * static_cast<double>(row);
    svg += CenteredText(kRowLabels / 2, y + kCellHeight / 2 + 4, map.rows[row]);
    for (size_t column = 0; column < map.columns.size(); ++column) {
      svg += CellSvg(map.cells[row * map.columns.size() + column],
                     kRowLabels + kCellWidth * static_cast<double>(column), y);
    }
  }
  for (size_t column = 0; column < map.columns.size(); ++column) {
    svg += CenteredText(kRowLabels + kCellWidth * (static_cast<double>(column) + 0.5), bottom + 16,
                        map.columns[column]);
  }
  svg += CenteredText((kRowLabels + width) / 2, bottom + 34, map.x_label);
  svg += fmt::format("<text x=\"8\" y=\"{:.1f}\">{}</text>\n", bottom + 52, EscapeHtml(map.legend));
  return svg + "</svg>\n";
}

}  // namespace tandem::loadgen
