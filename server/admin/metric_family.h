#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/histogram.h"

namespace tandem {

enum class MetricKind : uint8_t { kGauge, kCounter, kHistogram };

using MetricLabels = std::vector<std::pair<std::string, std::string>>;  // names and values

// One series of a gauge or counter at one moment.
struct MetricSample {
  MetricLabels labels;
  double value = 0;
};

// One histogram at one moment. The exemplars of its buckets are identified by request ids.
struct HistogramSample {
  MetricLabels labels;
  HistogramState state;
};

// All series of one metric name. The name of a counter ends in _total.
struct MetricFamily {
  std::string name;
  std::string help;  // one line
  MetricKind kind = MetricKind::kGauge;
  std::vector<MetricSample> samples;        // empty for histograms
  std::vector<HistogramSample> histograms;  // empty for gauges and counters
};

}  // namespace tandem
