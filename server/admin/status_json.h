#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Renders a router's answer to GetStatus as one JSON object: every field under its name in
// proto/tandem/v1, also where it is zero or empty. A worker's load is part of the worker's object,
// "causes" of "resumes" is an object with the causes as keys, and routes have their names on the
// command line.
std::string StatusJson(const v1::GetStatusResponse& status);

// What /status.json reports in addition to the status.
struct StatusSupplement {
  absl::StatusOr<v1::ExplainResponse> latest;  // the latest requests, or why they could not be read
  // The numbers of links and of prediction errors that were removed from the status, so that the
  // answer does not become too long.
  int links_left_out = 0;
  int prediction_errors_left_out = 0;
};

// Renders a status with the fields of `more`: "requests" is the list of that name in
// ExplanationJson, or null where "requests_missing" says why; "links_left_out" and
// "prediction_errors_left_out" are numbers.
std::string StatusJson(const v1::GetStatusResponse& status, const StatusSupplement& more);

// Renders a router's answer to Explain as one JSON object, with every field under its name in
// proto/tandem/v1. What is not known is null: the outcome of a request in flight, a prediction that
// was not made.
std::string ExplanationJson(const v1::ExplainResponse& response);

// Renders what `tandem inspect kv --json` prints: the hand-off of a request, which has one, with
// its class and tokens, and the sums over all layers.
std::string HandoffJson(const v1::RequestExplanation& request);

}  // namespace tandem
