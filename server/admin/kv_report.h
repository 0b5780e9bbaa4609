#pragma once

#include <string>

#include "absl/status/status.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// FAILED_PRECONDITION says why nothing is known of the KV of a request: it stayed on one worker, or no
// prefill worker has reported yet.
absl::Status CheckHandoff(const v1::RequestExplanation& request);

// What the KV of a request took on its way, for a person: a table per layer with K and V apart and a bar
// for each, `columns` wide. The request passes CheckHandoff.
std::string HandoffText(const v1::RequestExplanation& request, int columns);
// The table alone.
std::string KvTable(const v1::KvHandoff& handoff, int columns);

}  // namespace tandem
