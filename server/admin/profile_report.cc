#include "server/admin/profile_report.h"

#include <algorithm>
#include <set>

#include "bench/serving/svg_plot.h"
#include "fmt/format.h"

namespace tandem {
namespace {

using loadgen::Axis;
using loadgen::EscapeHtml;
using loadgen::Plot;
using loadgen::PlotSeries;
using Mark = PlotSeries::Mark;

constexpr char kMeasured[] = "#1f77b4";
constexpr char kMeasuredToo[] = "#ff7f0e";
constexpr char kModel[] = "#333";
constexpr char kModelToo[] = "#999";
constexpr int kCurvePoints = 60;

std::string MsText(double ms) { return fmt::format("{:.4g}", ms); }

bool IsPrefill(const StepShape& shape) { return shape.sequences == 0; }
bool IsDecode(const StepShape& shape) { return shape.prefill_tokens == 0; }

// The plot series of the measured steps whose shape passes `belongs`, at the position `x` of their
// shape.
template <typename Belongs, typename X>
PlotSeries Measured(std::string name, const char* color, const std::vector<MeasuredStep>& steps,
                    Belongs belongs, X x) {
  PlotSeries series{.name = std::move(name), .color = color, .mark = Mark::kDots, .points = {}};
  for (const MeasuredStep& one : steps) {
    if (!belongs(one.step.shape)) continue;
    series.points.push_back({static_cast<double>(x(one.step.shape)), MedianMs(one.sample.ms)});
  }
  return series;
}

// The plot series of the times that the model predicts for the shapes `shape_at` of 1 to `most`.
template <typename ShapeAt>
PlotSeries Modelled(std::string name, const char* color, const StepModel& model, int32_t most,
                    ShapeAt shape_at) {
  PlotSeries series{.name = std::move(name), .color = color, .mark = Mark::kLine, .points = {}};
  std::set<int32_t> sizes = {1};
  for (int i = 1; i <= kCurvePoints; ++i) sizes.insert(std::max(1, most * i / kCurvePoints));
  for (const int32_t size : sizes) {
    series.points.push_back({1.0 * size, model.Step(shape_at(size).features()).count()});
  }
  return series;
}

template <typename Value>
int32_t Largest(const std::vector<MeasuredStep>& steps, Value value) {
  int32_t most = 1;
  for (const MeasuredStep& one : steps) most = std::max(most, value(one.step.shape));
  return most;
}

Plot PrefillPlot(const StepModel& model, const std::vector<MeasuredStep>& steps) {
  const auto tokens = [](const StepShape& shape) { return shape.prefill_tokens; };
  Plot plot{.title = "Prefill alone",
            .x_label = "new tokens N",
            .y_label = "ms per step",
            .x_axis = Axis::kLogarithmic,
            .y_axis = Axis::kLogarithmic,
            .series = {}};
  plot.series.push_back(Measured(
      "measured, no cached prefix", kMeasured, steps,
      [](const StepShape& s) { return IsPrefill(s) && s.cached_tokens == 0; }, tokens));
  plot.series.push_back(Measured(
      "measured, behind a cached prefix", kMeasuredToo, steps,
      [](const StepShape& s) { return IsPrefill(s) && s.cached_tokens > 0; }, tokens));
  plot.series.push_back(Modelled("model, no cached prefix", kModel, model, Largest(steps, tokens),
                                 [](int32_t n) { return StepShape{.prefill_tokens = n}; }));
  return plot;
}

Plot DecodePlot(const StepModel& model, const std::vector<MeasuredStep>& steps) {
  const auto sequences = [](const StepShape& shape) { return shape.sequences; };
  const int32_t longest = Largest(steps, [](const StepShape& s) { return s.context_tokens; });
  int32_t shortest = longest;
  for (const MeasuredStep& one : steps) {
    if (IsDecode(one.step.shape)) shortest = std::min(shortest, one.step.shape.context_tokens);
  }
  Plot plot{
      .title = "Decode alone", .x_label = "sequences B", .y_label = "ms per step", .series = {}};
  const auto add = [&](int32_t context, const char* dots, const char* line) {
    plot.series.push_back(Measured(
        fmt::format("measured, {} tokens of context each", context), dots, steps,
        [context](const StepShape& s) { return IsDecode(s) && s.context_tokens == context; },
        sequences));
    plot.series.push_back(Modelled(
        fmt::format("model, {} tokens", context), line, model, Largest(steps, sequences),
        [context](int32_t b) { return StepShape{.sequences = b, .context_tokens = context}; }));
  };
  add(shortest, kMeasured, kModelToo);
  add(longest, kMeasuredToo, kModel);
  return plot;
}

Plot CurvePlot(const StepModel& model, const std::vector<MeasuredStep>& steps) {
  const std::optional<Knee>& knee = model.coefficients().batch_thresh;
  Plot plot{.title = knee ? fmt::format("Step curve: batch_thresh {} in [{}, {}]", knee->tokens,
                                        knee->low, knee->high)
                          : "Step curve: no batch_thresh",
            .x_label = "tokens N + B, one of which decodes",
            .y_label = "ms per step",
            .x_axis = Axis::kLogarithmic,
            .y_axis = Axis::kLogarithmic,
            .series = {}};
  PlotSeries measured{.name = "measured", .color = kMeasured, .mark = Mark::kDots, .points = {}};
  PlotSeries modelled{.name = "model", .color = kModel, .mark = Mark::kLine, .points = {}};
  for (const MeasuredStep& one : steps) {
    if (one.sample.use != SampleUse::kCurve) continue;
    const double tokens = one.step.shape.prefill_tokens + 1.0;
    measured.points.push_back({tokens, MedianMs(one.sample.ms)});
    modelled.points.push_back({tokens, model.Step(one.sample.features).count()});
  }
  plot.series = {measured, modelled};
  return plot;
}

Plot ErrorPlot(const StepModel& model, const std::vector<MeasuredStep>& steps) {
  Plot plot{.title = "Predicted and measured",
            .x_label = "measured ms",
            .y_label = "predicted ms",
            .x_axis = Axis::kLogarithmic,
            .y_axis = Axis::kLogarithmic,
            .series = {},
            .diagonal = true};
  PlotSeries fitted{.name = "fitted", .color = kModelToo, .mark = Mark::kDots, .points = {}};
  PlotSeries held_out{.name = "held out", .color = kMeasured, .mark = Mark::kDots, .points = {}};
  for (const MeasuredStep& one : steps) {
    const double ms = MedianMs(one.sample.ms);
    PlotSeries& series = one.sample.use == SampleUse::kHeldOut ? held_out : fitted;
    series.points.push_back({ms, model.Step(one.sample.features).count()});
  }
  plot.series = {fitted, held_out};
  return plot;
}

std::vector<const MeasuredStep*> Noisy(const std::vector<MeasuredStep>& steps) {
  std::vector<const MeasuredStep*> noisy;
  for (const MeasuredStep& one : steps) {
    if (one.noisy) noisy.push_back(&one);
  }
  return noisy;
}

std::string NoisyLine(const MeasuredStep& one) {
  const StepShape& s = one.step.shape;
  return fmt::format("N={} cached={} B={} context={}: {} ms, spread {:.1f}%", s.prefill_tokens,
                     s.cached_tokens, s.sequences, s.context_tokens,
                     MsText(MedianMs(one.sample.ms)), RelativeSpread(one.sample.ms) * 100);
}

std::string ClassicLine(const ClassicScalars& c) {
  return fmt::format(
      "alpha {} ms/token, beta {} ms, gamma {} ms/token, batch_thresh {}, bandwidth {}, setup {}",
      MsText(c.alpha_ms), MsText(c.beta_ms), MsText(c.gamma_ms),
      c.batch_thresh ? fmt::format("{} tokens", *c.batch_thresh) : "none",
      c.bandwidth_gb_per_s ? fmt::format("{:.3g} GB/s", *c.bandwidth_gb_per_s) : "not measured",
      c.setup_ms ? MsText(*c.setup_ms) + " ms" : "not measured");
}

std::string LinkLine(const NamedLink& link) {
  const LinkModel& model = link.model;
  std::string line = fmt::format("link {}: {:.3g} GB/s, setup {} ms, {} ms per operation",
                                 link.name, model.bytes_per_second * 1e-9,
                                 MsText(model.setup.count()), MsText(model.operation.count()));
  for (const LinkModel::Contention& point : model.contention) {
    line += fmt::format("; {} streams together {:.3g} GB/s", point.streams,
                        model.bytes_per_second * point.total * 1e-9);
  }
  return line;
}

}  // namespace

std::string ProfileText(const CostParameters& parameters, const std::vector<MeasuredStep>& steps) {
  const StepModel model = StepModel::Create(parameters.steps).value_or(StepModel());
  std::string text = ClassicLine(ClassicOf(model, parameters.links)) + "\n";
  for (const FittedCoefficient& one : parameters.intervals) {
    text += fmt::format("  {:<14} {:>10}   [{}, {}]\n", one.name, MsText(one.value),
                        MsText(one.low), MsText(one.high));
  }
  for (const ComponentError& one : parameters.held_out) {
    text += fmt::format(
        "held out {:<8} {} steps: mean error {:.1f}%, largest {:.1f}%, spread of repeats {:.1f}%\n",
        one.name, one.samples, one.mean * 100, one.max * 100, one.spread * 100);
  }
  for (const NamedLink& link : parameters.links) text += LinkLine(link) + "\n";
  const auto noisy = Noisy(steps);
  if (!noisy.empty()) {
    text += fmt::format("{} of {} steps stayed noisy; the page lists them\n", noisy.size(),
                        steps.size());
  }
  return text;
}

std::string ProfilePage(const CostParameters& parameters, const std::vector<MeasuredStep>& steps) {
  const StepModel model = StepModel::Create(parameters.steps).value_or(StepModel());
  const CostProvenance& p = parameters.provenance;
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Profile of {0}"
      "</title></head>\n<body style=\"font-family:sans-serif;max-width:60em;margin:auto\">\n"
      "<h1>Profile of {0}</h1>\n<p>{1}; device {2}, {3} threads; weights {4}, KV {5}; build {6}, "
      "{7}</p>\n<p>{8}</p>\n",
      EscapeHtml(p.model), EscapeHtml(p.machine), EscapeHtml(p.device), p.threads,
      EscapeHtml(p.dtype), EscapeHtml(p.kv_dtype), EscapeHtml(p.build), EscapeHtml(p.measured),
      EscapeHtml(ClassicLine(ClassicOf(model, parameters.links))));
  for (const Plot& plot : {PrefillPlot(model, steps), DecodePlot(model, steps),
                           CurvePlot(model, steps), ErrorPlot(model, steps)}) {
    page += loadgen::RenderSvg(plot);
  }
  page += "<h2>Coefficients</h2>\n<table><tr><th>name</th><th>ms</th><th>95% interval</th></tr>\n";
  for (const FittedCoefficient& one : parameters.intervals) {
    page += fmt::format("<tr><td>{}</td><td>{}</td><td>{} to {}</td></tr>\n", EscapeHtml(one.name),
                        MsText(one.value), MsText(one.low), MsText(one.high));
  }
  page +=
      "</table>\n<h2>Steps that were held out</h2>\n<table><tr><th></th><th>steps</th><th>mean "
      "error</th><th>largest</th><th>spread of repeats</th></tr>\n";
  for (const ComponentError& one : parameters.held_out) {
    page += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.1f}%</td><td>{:.1f}%</td><td>{:.1f}%</td></tr>\n",
        EscapeHtml(one.name), one.samples, one.mean * 100, one.max * 100, one.spread * 100);
  }
  page += "</table>\n<h2>Links</h2>\n<ul>\n";
  for (const NamedLink& link : parameters.links) {
    page += fmt::format("<li>{}</li>\n", EscapeHtml(LinkLine(link)));
  }
  page += "</ul>\n<h2>Steps that stayed noisy</h2>\n<ul>\n";
  for (const MeasuredStep* one : Noisy(steps)) {
    page += fmt::format("<li>{}</li>\n", NoisyLine(*one));
  }
  return page + "</ul></body></html>\n";
}

}  // namespace tandem
