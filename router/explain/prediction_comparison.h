#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/policy/placement.h"
#include "router/policy/prediction_errors.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Why a request needed a decision.
enum class DecisionCause : uint8_t {
  kArrival,
  kRefused,  // a worker had no room for it
  kResumed,  // one of its workers was lost or is leaving
  kMoved,    // it left a worker's queue for another route that had become free
};

// Half the width of the interval in which an actual time is expected, relative to the predicted
// time; of a stage relative to the predicted TTFT or E2E. 0: nothing is stated.
using StatedIntervals = std::array<double, kNumPredictionTerms>;

// A decision on the route of a request.
struct Decision {
  Duration at{};  // after the request's arrival
  DecisionCause cause = DecisionCause::kArrival;
  double expected_output_tokens = 1;
  RouteDecision route;
  StatedIntervals stated{};  // with the prediction of the chosen placement
};

// How a request ended.
struct RequestEnd {
  absl::Status status;
  std::optional<v1::ChoiceFinish> finish;  // of the longest choice; nothing if no choice ended
  Duration admission{};                    // how long the last attempt waited for room
  int32_t resumes = 0;
  int32_t cached_tokens = 0;
  int32_t evicted_tokens = 0;
  bool sent_whole = false;  // in one piece at the end, as a beam search is
};

// One predicted term and what came true.
struct Residual {
  PredictionTerm term = PredictionTerm::kTtft;
  double predicted_ms = 0;
  double actual_ms = 0;
  double relative = 0;     // v1::PredictionResidual explains it
  double interval_ms = 0;  // stated on each side of predicted_ms; 0: none was stated

  bool IsInside() const;
};

struct Comparison {
  std::vector<Residual> residuals;
  std::string not_compared;  // why there are no residuals; else empty
};

// Whether the decision sends a request to the workers where this choice ended.
bool DecidesOn(const Decision& decision, const v1::ChoiceFinish& finish);

// Compares what a decision predicted with what came true from that decision on.
// The predicted decode, and with it TPOT and E2E, is scaled to the number of tokens that came: the
// decode time of the prediction is proportional to the tokens after the first. Terms whose actual
// time is 0 or which the placement lacks (transfer and admission when unified) are left out.
Comparison Compare(const Decision& decision, const RequestEnd& end);

}  // namespace tandem
