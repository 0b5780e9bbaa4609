#pragma once

#include <chrono>
#include <optional>

#include "absl/status/status.h"

namespace tandem {

// How long whoever got this status (RESOURCE_EXHAUSTED) should wait before it asks again. It
// travels inside the status, over gRPC as trailing metadata "retry-after-ms".
void SetRetryAfter(absl::Status& status, std::chrono::milliseconds after);
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);

}  // namespace tandem
