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

// One histogram at one moment. The ids of its exemplars are ids of requests.
struct HistogramSample {
  MetricLabels labels;
  HistogramState state;
};

// All series of one name. The name of a counter ends in _total.
struct MetricFamily {
  std::string name;
  std::string help;  // one line
  MetricKind kind = MetricKind::kGauge;
  std::vector<MetricSample> samples;        // of gauges and counters
  std::vector<HistogramSample> histograms;  // of histograms
};

}  // namespace tandem
