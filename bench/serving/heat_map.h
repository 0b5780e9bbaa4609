#pragma once

#include <string>
#include <vector>

namespace tandem::loadgen {

struct HeatCell {
  std::string text;  // in the cell
  // From -1 (red) over 0 (white) to 1 (blue); not a number: grey.
  double value = 0;
  std::string detail;  // shown where the pointer rests
};

// A table of two quantities whose cells have colours.
struct HeatMap {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<HeatCell> cells;  // row after row
  std::string legend;           // what the colours mean
};

// An <svg> element without scripts. There are as many cells as rows times columns.
std::string RenderHeatMap(const HeatMap& map);

}  // namespace tandem::loadgen
