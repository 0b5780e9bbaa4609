#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// How long whoever got this status (RESOURCE_EXHAUSTED) should wait before it asks again. It
// travels inside the status, over gRPC as trailing metadata "retry-after-ms".
// None is longer: what a peer says beyond is no answer.
inline constexpr std::chrono::hours kMaxRetryAfter{24};
// Less than 0 or more than kMaxRetryAfter is cut to that.
void SetRetryAfter(absl::Status& status, std::chrono::milliseconds after);
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);

// Reads the milliseconds that travel. Total over any bytes; empty for what is no such number.
std::optional<std::chrono::milliseconds> ParseRetryAfter(std::string_view text);

}  // namespace tandem
