#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// The retry-after: how long the receiver of a status (RESOURCE_EXHAUSTED) should wait before it
// asks again. It is a payload of the status and, over gRPC, the trailing metadata "retry-after-ms".

// The upper bound of a retry-after; a longer value from a peer is ignored.
inline constexpr std::chrono::hours kMaxRetryAfter{24};

// Attaches the retry-after `after`, clamped to [0, kMaxRetryAfter], to `status`.
void SetRetryAfter(absl::Status& status, std::chrono::milliseconds after);
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);

// Parses the metadata "retry-after-ms". Accepts any bytes; empty unless `text` is a number of
// milliseconds in range.
std::optional<std::chrono::milliseconds> ParseRetryAfter(std::string_view text);

}  // namespace tandem
