#include "server/admin/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 400;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 40;
constexpr double kBottom = 50;
constexpr double kTicks = 6;  // about so many on a linear axis

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
  // After all values: leaves room, and begins linear axes at 0 where that is near.
  void Finish() {
    if (low_ > high_) low_ = high_ = 1;
    if (axis_ == Axis::kLogarithmic) {
      low_ /= 1.2;
      high_ *= 1.2;
      return;
    }
    if (low_ > 0 && low_ < high_ / 2) low_ = 0;
    if (high_ == low_) high_ = low_ + 1;
    high_ += (high_ - low_) * 0.05;
  }
  double Share(double value) const {
    if (axis_ == Axis::kLinear) return (value - low_) / (high_ - low_);
    return std::log(value / low_) / std::log(high_ / low_);
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (axis_ == Axis::kLogarithmic) {
      for (double decade = std::pow(10, std::floor(std::log10(low_))); decade <= high_;
           decade *= 10) {
        for (const double factor : {1, 2, 5}) {
          if (decade * factor >= low_ && decade * factor <= high_) ticks.push_back(decade * factor);
        }
      }
      return ticks;
    }
    const double rough = (high_ - low_) / kTicks;
    const double decade = std::pow(10, std::floor(std::log10(rough)));
    double step = decade;
    for (const double factor : {2, 5, 10}) {
      if (step < rough) step = decade * factor;
    }
    for (double tick = std::ceil(low_ / step) * step; tick <= high_; tick += step) {
      ticks.push_back(tick);
    }
    return ticks;
  }

 private:
  const Axis axis_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot), x_(plot.x_axis), y_(plot.y_axis) {
    for (const PlotSeries& series : plot.series) {
      for (const PlotPoint& point : series.points) {
        x_.Include(point.x);
        y_.Include(point.y);
      }
    }
    x_.Finish();
    y_.Finish();
  }

  std::string Draw() {
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n",
        kWidth, kHeight, kWidth);
    Text(kWidth / 2, 20, "middle", plot_.title, " font-size=\"14\" font-weight=\"bold\"");
    DrawAxes();
    for (const PlotSeries& series : plot_.series) DrawSeries(series);
    DrawLegend();
    return svg_ + "</svg>\n";
  }

 private:
  double X(double value) const { return kLeft + x_.Share(value) * (kWidth - kLeft - kRight); }
  double Y(double value) const {
    return kHeight - kBottom - y_.Share(value) * (kHeight - kTop - kBottom);
  }

  void Text(double x, double y, std::string_view anchor, std::string_view text,
            std::string_view style = "") {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                        anchor, style, EscapeHtml(text));
  }
  void Line(double x1, double y1, double x2, double y2, std::string_view color) {
    svg_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, color);
  }

  void DrawAxes() {
    for (const double tick : x_.Ticks()) {
      Line(X(tick), kTop, X(tick), kHeight - kBottom, "#ddd");
      Text(X(tick), kHeight - kBottom + 16, "middle", fmt::format("{:.4g}", tick));
    }
    for (const double tick : y_.Ticks()) {
      Line(kLeft, Y(tick), kWidth - kRight, Y(tick), "#ddd");
      Text(kLeft - 6, Y(tick) + 4, "end", fmt::format("{:.4g}", tick));
    }
    Line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "#333");
    Line(kLeft, kTop, kLeft, kHeight - kBottom, "#333");
    Text(kWidth / 2, kHeight - 12, "middle", plot_.x_label);
    Text(0, 0, "middle", plot_.y_label,
         fmt::format(" transform=\"translate(16 {}) rotate(-90)\"", kHeight / 2));
  }

  void DrawSeries(const PlotSeries& series) {
    std::string path;
    for (const PlotPoint& point : series.points) {
      if (!x_.Holds(point.x) || !y_.Holds(point.y)) continue;
      if (series.kind == PlotSeries::Kind::kLine) {
        path += fmt::format("{:.1f},{:.1f} ", X(point.x), Y(point.y));
      } else {
        svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                            X(point.x), Y(point.y), series.color);
      }
    }
    if (path.empty()) return;
    svg_ +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", path, series.color);
  }

  void DrawLegend() {
    double y = kTop + 14;
    for (const PlotSeries& series : plot_.series) {
      svg_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"{}\" fill=\"{}\"/>\n", kLeft + 10,
          y - 9, series.kind == PlotSeries::Kind::kLine ? 2 : 10, series.color);
      Text(kLeft + 26, y, "start", series.name);
      y += 16;
    }
  }

  const Plot& plot_;
  Scale x_;
  Scale y_;
  std::string svg_;
};

}  // namespace

std::string SvgOf(const Plot& plot) { return Drawing(plot).Draw(); }

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

}  // namespace tandem
