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

// One way of serving a request: all that the two requests of a comparison differ in.
struct ServedAs {
  std::string router;  // host:port
  v1::Route route = v1::ROUTE_AUTO;
  std::string quality;   // kv_quality
  std::string eviction;  // kv_eviction
};

// What was compared.
struct EvalSubject {
  std::string model;
  ServedAs baseline;
  ServedAs tested;
  WindowPlan plan;
  int32_t num_logprobs = 20;
  std::optional<PlantedQuestion> planted;  // nothing: the windows are parts of the texts
};

// What came of one window.
struct WindowResult {
  std::string name;
  PredictionChange change;
  v1::Route baseline_route = v1::ROUTE_AUTO;  // taken, never auto
  v1::Route route = v1::ROUTE_AUTO;           // that the tested request took
  v1::KvBytes kv;                             // of the tested request
  // Whether greedy decoding would have given the planted fact; nothing where no fact was planted.
  std::optional<bool> baseline_found;
  std::optional<bool> found;
};

struct EvalResult {
  EvalSubject subject;
  std::vector<WindowResult> windows;  // at least one
};

// A number that each window has, or has not.
struct Measure {
  enum class Worst : uint8_t { kHighest, kLowest };

  std::string_view key;     // in JSON
  std::string_view title;   // for people
  std::string_view column;  // the same, short
  Worst worst;
  int digits;  // behind the point, in tables
  std::optional<double> (*of)(const WindowResult& window);
};

// In the order in which reports have them. Those of planted facts only where facts were planted.
std::span<const Measure> MeasuresOf(const EvalSubject& subject);

// One measure over all windows that have it.
struct MeasureTotal {
  double mean = 0;
  std::optional<double> standard_error;  // of the mean; two windows are needed
  double worst = 0;
  size_t worst_window = 0;  // index of the first one that has it
};

// Nothing when no window has the measure.
std::optional<MeasureTotal> TotalOf(const Measure& measure,
                                    const std::vector<WindowResult>& windows);

}  // namespace tandem
