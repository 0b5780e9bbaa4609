#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::jinja {

// strftime() of Python for a time in UTC, with English names. INVALID_ARGUMENT for a directive that
// is not supported.
absl::StatusOr<std::string> FormatTime(std::string_view format,
                                       std::chrono::system_clock::time_point time);

}  // namespace tandem::jinja
