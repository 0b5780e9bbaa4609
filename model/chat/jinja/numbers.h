#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::jinja {

// int() and float() of Python for a string; nothing where they raise ValueError. INVALID_ARGUMENT
// for an integer beyond 64 bits.
absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int64_t base);
std::optional<double> ParseReal(std::string_view text);

}  // namespace tandem::jinja
