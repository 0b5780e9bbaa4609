#include "server/admin/exposition.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "fmt/format.h"

namespace tandem {
namespace {

constexpr std::string_view kTotal = "_total";
// The most characters that OpenMetrics allows for the labels of an exemplar, their names included.
constexpr size_t kMostExemplarCharacters = 128;
constexpr std::string_view kExemplarLabel = "request_id";

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Formats the bound of a histogram bucket. Whole numbers get a fraction, as most writers of this
// format give them one.
std::string Bound(double value) {
  std::string text = Number(value);
  if (text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string LabelsText(const MetricLabels& labels) {
  if (labels.empty()) return "";
  std::string text;
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", name, Escaped(value));
  }
  return text + "}";
}

MetricLabels With(MetricLabels labels, std::string name, std::string value) {
  labels.emplace_back(std::move(name), std::move(value));
  return labels;
}

// Converts a time of the monotonic clock to seconds of Unix time. Exemplars are kept on the
// monotonic clock, which is never set, so both clocks are read here.
double UnixSeconds(TimePoint when) {
  using Seconds = std::chrono::duration<double>;
  const Seconds since = std::chrono::steady_clock::now() - when;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count() - since.count();
}

std::string ExemplarText(const Exemplar& exemplar) {
  const std::string id = Escaped(exemplar.id);
  if (id.empty() || kExemplarLabel.size() + id.size() > kMostExemplarCharacters) return "";
  return fmt::format(" # {{{}=\"{}\"}} {} {:.3f}", kExemplarLabel, id, Number(exemplar.value),
                     UnixSeconds(exemplar.when));
}

class Writer {
 public:
  explicit Writer(ExpositionFormat format) : format_(format) {}

  void Add(const MetricFamily& family) {
    if (family.samples.empty() && family.histograms.empty()) return;
    AddHead(family);
    for (const MetricSample& sample : family.samples) {
      page_ +=
          fmt::format("{}{} {}\n", family.name, LabelsText(sample.labels), Number(sample.value));
    }
    for (const HistogramSample& sample : family.histograms) AddHistogram(family.name, sample);
  }

  std::string Finish() {
    if (format_ == ExpositionFormat::kOpenMetrics) page_ += "# EOF\n";
    return std::move(page_);
  }

 private:
  // Adds the HELP and TYPE lines of a family. In OpenMetrics, the family of a counter is named
  // without _total.
  void AddHead(const MetricFamily& family) {
    constexpr const char* kKinds[] = {"gauge", "counter", "histogram"};
    std::string_view name = family.name;
    if (format_ == ExpositionFormat::kOpenMetrics && family.kind == MetricKind::kCounter) {
      name.remove_suffix(kTotal.size());
    }
    page_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, Escaped(family.help),
                         kKinds[static_cast<size_t>(family.kind)]);
  }

  void AddHistogram(const std::string& name, const HistogramSample& sample) {
    const HistogramState& state = sample.state;
    uint64_t count = 0;
    for (size_t i = 0; i < state.counts.size(); ++i) {
      count += state.counts[i];
      const std::string bound = i < state.bounds.size() ? Bound(state.bounds[i]) : "+Inf";
      page_ +=
          fmt::format("{}_bucket{} {}", name, LabelsText(With(sample.labels, "le", bound)), count);
      if (format_ == ExpositionFormat::kOpenMetrics) page_ += ExemplarText(state.latest[i]);
      page_ += '\n';
    }
    const std::string labels = LabelsText(sample.labels);
    page_ +=
        fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, labels, Number(state.sum), count);
  }

  const ExpositionFormat format_;
  std::string page_;
};

// How much a client wants the media type of one part of its Accept header: its parameter q, from 0
// to 1, or 1 where it has none.
double Preference(absl::string_view part) {
  for (const absl::string_view parameter : absl::StrSplit(part, ';')) {
    const absl::string_view text = absl::StripAsciiWhitespace(parameter);
    double q = 0;
    if (text.size() > 2 && (text[0] == 'q' || text[0] == 'Q') && text[1] == '=' &&
        absl::SimpleAtod(text.substr(2), &q)) {
      return q;
    }
  }
  return 1;
}

}  // namespace

ExpositionFormat FormatFor(std::optional<std::string_view> accept) {
  double open_metrics = 0;
  double text = 0;
  const std::string_view header = accept.value_or("");
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(header.data(), header.size()), ',')) {
    const absl::string_view type = absl::StripAsciiWhitespace(part.substr(0, part.find(';')));
    const double wanted = Preference(part);
    if (absl::EqualsIgnoreCase(type, "application/openmetrics-text")) {
      open_metrics = std::max(open_metrics, wanted);
    } else if (absl::EqualsIgnoreCase(type, "text/plain")) {
      text = std::max(text, wanted);
    }
  }
  return open_metrics > 0 && open_metrics >= text ? ExpositionFormat::kOpenMetrics
                                                  : ExpositionFormat::kText;
}

std::string_view ContentType(ExpositionFormat format) {
  return format == ExpositionFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4";
}

std::string Expose(std::span<const MetricFamily> families, ExpositionFormat format) {
  Writer writer(format);
  for (const MetricFamily& family : families) writer.Add(family);
  return writer.Finish();
}

}  // namespace tandem
