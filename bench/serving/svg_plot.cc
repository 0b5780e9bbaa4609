#include "bench/serving/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

constexpr double kPlotWidth = 640;
constexpr double kHeight = 300;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 34;
constexpr double kBottom = 48;
constexpr size_t kMostPoints = 3000;
constexpr std::array<std::string_view, 8> kPalette = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                                      "#66ccee", "#aa3377", "#bbbbbb", "#dd7711"};

// One axis: values to the share of its length.
class Scale {
 public:
  explicit Scale(Axis axis) : axis_(axis) {}

  bool Holds(double value) const {
    return std::isfinite(value) && (axis_ == Axis::kLinear || value > 0);
  }
  void Include(double value) {
    if (!Holds(value)) return;
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  // After all values.
  void Finish() {
    if (low_ > high_) low_ = high_ = 1;
    if (axis_ == Axis::kLogarithmic) {
      low_ /= kRoom;
      high_ *= kRoom;
      return;
    }
    low_ = 0;
    if (!(high_ > 0)) high_ = 1;
    high_ = std::ceil(high_ / TickStep(high_)) * TickStep(high_);
  }
  double low() const { return low_; }
  double high() const { return high_; }
  double Share(double value) const {
    if (axis_ == Axis::kLinear) return value / high_;
    return std::log(value / low_) / std::log(high_ / low_);
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (axis_ == Axis::kLinear) {
      const double step = TickStep(high_);
      for (int i = 0; i * step <= high_ * 1.0001; ++i) ticks.push_back(i * step);
      return ticks;
    }
    for (double power = std::pow(10, std::floor(std::log10(low_))); power <= high_; power *= 10) {
      for (const double tick : {power, 2 * power, 5 * power}) {
        if (tick >= low_ && tick <= high_) ticks.push_back(tick);
      }
    }
    return ticks;
  }

 private:
  static constexpr double kRoom = 1.2;  // on both sides of a logarithmic axis

  const Axis axis_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

// Maps values to pixels.
struct Scales {
  Scale x;
  Scale y;

  double X(double value) const { return kLeft + x.Share(value) * (kPlotWidth - kLeft - kRight); }
  double Y(double value) const {
    return kHeight - kBottom - y.Share(value) * (kHeight - kTop - kBottom);
  }
};

Scales ScalesOf(const Plot& plot) {
  Scales scales{Scale(plot.x_axis), Scale(plot.y_axis)};
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      scales.x.Include(point.x);
      scales.y.Include(point.y);
      if (!plot.diagonal) continue;
      scales.x.Include(point.y);
      scales.y.Include(point.x);
    }
  }
  scales.x.Finish();
  scales.y.Finish();
  return scales;
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     EscapeHtml(text));
}

std::string GridLine(double x1, double y1, double x2, double y2, std::string_view color) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, color);
}

std::string Axes(const Plot& plot, const Scales& scales) {
  constexpr std::string_view kGrid = "#e4e4e4";
  std::string svg;
  for (const double tick : scales.x.Ticks()) {
    const double at = scales.X(tick);
    svg += GridLine(at, kTop, at, kHeight - kBottom, kGrid);
    svg += Text(at, kHeight - kBottom + 16, "middle", fmt::format("{:g}", tick));
  }
  for (const double tick : scales.y.Ticks()) {
    const double at = scales.Y(tick);
    svg += GridLine(kLeft, at, kPlotWidth - kRight, at, kGrid);
    svg += Text(kLeft - 6, at + 4, "end", fmt::format("{:g}", tick));
  }
  svg += GridLine(kLeft, kHeight - kBottom, kPlotWidth - kRight, kHeight - kBottom, "#333");
  svg += GridLine(kLeft, kTop, kLeft, kHeight - kBottom, "#333");
  svg += Text(kPlotWidth / 2, kHeight - 12, "middle", plot.x_label);
  svg += fmt::format(
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      kHeight / 2, EscapeHtml(plot.y_label));
  return svg;
}

std::string Series(const PlotSeries& series, const Scales& scales) {
  const size_t stride = series.points.size() / kMostPoints + 1;
  std::string svg;
  for (size_t i = 0; i < series.points.size(); i += stride) {
    const PlotPoint& point = series.points[i];
    if (!scales.x.Holds(point.x) || !scales.y.Holds(point.y)) continue;
    const double x = scales.X(point.x);
    const double y = scales.Y(point.y);
    if (series.mark == PlotSeries::Mark::kLine) {
      svg += fmt::format("{}{:.1f} {:.1f}", svg.empty() ? "M" : " L", x, y);
    } else {
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\" "
          "fill-opacity=\"0.6\"/>\n",
          x, y, series.color);
    }
  }
  if (series.mark == PlotSeries::Mark::kDots || svg.empty()) return svg;
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", svg,
                     series.color);
}

std::string Legend(const std::vector<PlotSeries>& all) {
  std::string svg;
  double x = kLeft;
  for (const PlotSeries& series : all) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"22\" width=\"9\" height=\"9\" fill=\"{}\"/>\n", x,
                       series.color);
    svg += Text(x + 13, 30, "start", series.name);
    x += 30 + 6.2 * static_cast<double>(series.name.size());
  }
  return svg;
}

std::string Frame(double height, const std::string& title, const std::string& inside) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<title>{}</title>\n"
      "<text x=\"{}\" y=\"14\" class=\"title\">{}</text>\n{}</svg>\n",
      kPlotWidth, height, kPlotWidth, EscapeHtml(title), kLeft, EscapeHtml(title), inside);
}

}  // namespace

double TickStep(double highest) {
  const double power = std::pow(10, std::floor(std::log10(highest)));
  const double leading = highest / power;
  if (leading <= 2) return power / 5;
  return leading <= 5 ? power / 2 : power;
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string RenderSvg(const Plot& plot) {
  const Scales scales = ScalesOf(plot);
  std::string inside = Axes(plot, scales);
  if (plot.diagonal) {
    inside += GridLine(scales.X(scales.x.low()), scales.Y(scales.y.low()),
                       scales.X(scales.x.high()), scales.Y(scales.y.high()), "#999");
  }
  for (const PlotSeries& series : plot.series) inside += Series(series, scales);
  return Frame(kHeight, plot.title, inside + Legend(plot.series));
}

std::string RenderBar(const std::string& title, const std::vector<BarPart>& parts,
                      const std::string& unit) {
  constexpr double kLineHeight = 18;
  double sum = 0;
  for (const BarPart& part : parts) sum += part.value;
  std::string inside;
  double x = kLeft;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string_view color = kPalette[i % kPalette.size()];
    const double width = sum > 0 ? parts[i].value / sum * (kPlotWidth - kLeft - kRight) : 0;
    inside += fmt::format(
        "<rect x=\"{:.1f}\" y=\"24\" width=\"{:.1f}\" height=\"24\" "
        "fill=\"{}\"/>\n",
        x, width, color);
    const double y = 68 + kLineHeight * static_cast<double>(i);
    inside += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"9\" height=\"9\" fill=\"{}\"/>\n",
                          kLeft, y - 9, color);
    inside += Text(kLeft + 14, y, "start",
                   fmt::format("{} {:.2f} {}", parts[i].name, parts[i].value, unit));
    x += width;
  }
  return Frame(72 + kLineHeight * static_cast<double>(parts.size()), title, inside);
}

}  // namespace tandem::loadgen
