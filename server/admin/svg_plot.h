#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Axis : unsigned char { kLinear, kLogarithmic };

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotSeries {
  enum class Kind : unsigned char { kDots, kLine };
  std::string name;
  std::string color;  // of CSS
  Kind kind = Kind::kDots;
  std::vector<PlotPoint> points;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  Axis x_axis = Axis::kLinear;
  Axis y_axis = Axis::kLinear;
  std::vector<PlotSeries> series;
};

// The plot as an <svg> element that needs no style sheet, script or font. Points that are not finite,
// or not above 0 on a logarithmic axis, are left out.
std::string SvgOf(const Plot& plot);

// `text` with the characters replaced that mean something in HTML.
std::string EscapeHtml(std::string_view text);

}  // namespace tandem
