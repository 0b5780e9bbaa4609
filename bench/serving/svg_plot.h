#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::loadgen {

enum class Axis : unsigned char { kLinear, kLogarithmic };

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotSeries {
  enum class Mark { kLine, kDots };
  std::string name;
  std::string color;  // as in CSS
  Mark mark = Mark::kLine;
  std::vector<PlotPoint> points;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  Axis x_axis = Axis::kLinear;
  Axis y_axis = Axis::kLinear;
  std::vector<PlotSeries> series;
  bool diagonal = false;  // the line y = x
};

// An <svg> element with axes, ticks and a legend, without scripts. A linear axis begins at 0 and
// ends at a tick above the largest value; a logarithmic one holds all values. Points that are not
// finite, or not above 0 on a logarithmic axis, are left out. Of a series with many points, evenly
// spaced ones are drawn.
std::string RenderSvg(const Plot& plot);

struct BarPart {
  std::string name;
  double value = 0;  // from 0 on
};
// One horizontal bar whose parts add up, with a legend that has the values in `unit`.
std::string RenderBar(const std::string& title, const std::vector<BarPart>& parts,
                      const std::string& unit);

// With <, >, & and quotes written as HTML wants them.
std::string EscapeHtml(std::string_view text);

// Steps of 1, 2 or 5 times a power of ten: four to ten of them reach `highest`, which is above 0.
double TickStep(double highest);

}  // namespace tandem::loadgen
