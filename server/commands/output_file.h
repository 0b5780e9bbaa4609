#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem {

// A command that takes minutes asks this of the files that it will write before it begins.
// INVALID_ARGUMENT names a path that cannot be written; an empty path is no file. Leaves a file that is
// there as it is.
absl::Status CheckWritable(const std::string& path);

// Writes beside `path` first, so that a file of that name is whole at any time.
absl::Status WriteWhole(const std::string& path, const std::string& content);

}  // namespace tandem
