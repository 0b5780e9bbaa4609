#pragma once

#include <string>

namespace tandem {

// The name under which a model directory is served unless another is given: the last part of its
// path.
std::string ModelNameFor(const std::string& directory);

}  // namespace tandem
