#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/eval/eval_windows.h"
#include "server/eval/planted_text.h"
#include "server/eval/prediction_change.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// How a request is served. The baseline's and the tested request of a window differ in nothing
// else.
struct ServedAs {
  std::string router;  // host:port
  v1::Route route = v1::ROUTE_AUTO;
  std::string quality;   // the request's field kv_quality
  std::string eviction;  // the request's field kv_eviction
};

// What an evaluation compares: two ways of serving, on the same windows of tokens.
struct EvalSubject {
  std::string model;
  ServedAs baseline;
  ServedAs tested;
  WindowPlan plan;
  int32_t num_logprobs = 20;
  std::optional<PlantedQuestion> planted;  // nothing: the windows are parts of the texts
};

// The result of one window of tokens.
struct WindowResult {
  std::string name;
  PredictionChange change;
  v1::Route baseline_route = v1::ROUTE_AUTO;  // the route taken, never auto
  v1::Route route = v1::ROUTE_AUTO;           // that the tested request took
  v1::KvBytes kv;                             // the KV that the tested request moved
  // Whether greedy decoding would have given the planted fact, for the baseline and for the tested
  // request; nothing where no fact was planted.
  std::optional<bool> baseline_found;
  std::optional<bool> found;
};

struct EvalResult {
  EvalSubject subject;
  std::vector<WindowResult> windows;  // at least one
};

// A number that is computed for each window; some windows may lack it.
struct Measure {
  enum class Worst : uint8_t { kHighest, kLowest };

  std::string_view key;     // in JSON
  std::string_view title;   // for people
  std::string_view column;  // a shorter name, for the table of windows
  Worst worst;
  int digits;  // after the decimal point, in tables
  std::optional<double> (*of)(const WindowResult& window);
};

// The measures in the order of reports. Those of planted facts are included only where facts were
// planted.
std::span<const Measure> MeasuresOf(const EvalSubject& subject);

// One measure over all windows that have it.
struct MeasureTotal {
  double mean = 0;
  std::optional<double> standard_error;  // of the mean; two windows are needed
  double worst = 0;
  size_t worst_window = 0;  // the index of the first window with that value
};

// Sums up one measure. Nothing when no window has it.
std::optional<MeasureTotal> TotalOf(const Measure& measure,
                                    const std::vector<WindowResult>& windows);

}  // namespace tandem
