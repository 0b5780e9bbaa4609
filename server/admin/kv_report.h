#pragma once

#include <string>

#include "absl/status/status.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// OK when the KV of the request can be reported; else FAILED_PRECONDITION says why not: it stayed
// on one worker, or no prefill worker has reported yet.
absl::Status CheckHandoff(const v1::RequestExplanation& request);

// Reports for a person how the KV of a request was handed over: a table per layer with K and V
// apart and a bar for each, `columns` wide. The request passes CheckHandoff.
std::string HandoffText(const v1::RequestExplanation& request, int columns);
// The table of HandoffText alone, without the lines about the request.
std::string KvTable(const v1::KvHandoff& handoff, int columns);

}  // namespace tandem
