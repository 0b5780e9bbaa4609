#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem {

// Checks a file that is to be written later: a command that takes minutes calls it before it
// begins. INVALID_ARGUMENT names a path that cannot be written; an empty path stands for no file
// and is OK. The contents of an existing file remain.
absl::Status CheckWritable(const std::string& path);

// Writes beside `path` first, so that a file of that name is whole at any time.
absl::Status WriteWhole(const std::string& path, const std::string& content);

}  // namespace tandem
