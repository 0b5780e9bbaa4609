#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// Sets up the process-wide logger: stderr, one line per event, `key=value`, UTC time.
// level: trace|debug|info|warn|error|off. name: shown on each line ("router", "decode-1").
// INVALID_ARGUMENT for an unknown level.
absl::Status SetUpLogging(std::string_view level, std::string_view name);

}  // namespace tandem
