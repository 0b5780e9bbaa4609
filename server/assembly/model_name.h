#pragma once

#include <string>

namespace tandem {

// The name that a model directory is served under unless another is given: its last part.
std::string ModelNameFor(const std::string& directory);

}  // namespace tandem
