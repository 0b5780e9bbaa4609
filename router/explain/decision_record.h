#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/explain/prediction_comparison.h"
#include "router/policy/placement.h"
#include "router/policy/prediction_errors.h"
#include "router/policy/route_query.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// All that is kept of one request, from its first decision on.
struct DecisionRecord {
  std::string request_id;  // the client's; several requests may have the same
  TimePoint received;
  v1::Route wanted = v1::ROUTE_AUTO;
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int32_t sequences = 1;
  Slo slo;
  std::vector<Decision> decisions;  // at least one, in the order of time
  int32_t left_out = 0;             // decisions after the first one that were dropped
  std::string kv_quality;
  std::optional<v1::KvHandoff> handoff;  // the latest one that was reported
  std::optional<RequestEnd> end;         // once the request has ended
  Comparison comparison;                 // empty until the request has ended
};

// Bytes of memory that the record takes, what it points to included.
size_t BytesOf(const DecisionRecord& record);

v1::RequestExplanation ToMessage(const DecisionRecord& record, std::string_view policy,
                                 TimePoint now);

// The latest decision that sent the request to the workers where it ended. A later decision for
// other workers had no effect if they had no room and the request stayed. Where no decision fits,
// the latest of all.
const Decision& DecisionThatTookEffect(const DecisionRecord& record,
                                       const v1::ChoiceFinish& finish);

// The prediction for the chosen placement, from the request's arrival on; nothing where the policy
// made none.
std::optional<v1::Prediction> PredictionOf(const Decision& decision);

}  // namespace tandem
