#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tandem {

// The name in `known` that `given` most likely stands for: the one that the fewest insertions,
// removals, changes and swaps of neighbouring letters turn it into. Empty when even that takes more
// changes than a third of its letters, or than two where that is more. Leading dashes, and _ for -,
// do not count.
std::string NearestName(std::string_view given, const std::set<std::string>& known);

// The end of an error message: ": did you mean \"kv-bytes\"?" with the nearest known name, or
// `otherwise` where no name is near.
std::string DidYouMean(std::string_view given, const std::set<std::string>& known,
                       std::string_view otherwise);

}  // namespace tandem
