#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// A regular file of at most 4 MiB as a whole. INVALID_ARGUMENT with the reason, without the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace tandem
