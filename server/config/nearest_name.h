#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tandem {

// The name in `known` that `given` most likely stands for: the one that the fewest insertions,
// removals, changes and swaps of neighbouring letters make of it. Empty where none is near, which is
// a third of its letters. Dashes before the name, and _ for -, do not count.
std::string NearestName(std::string_view given, const std::set<std::string>& known);

// ": did you mean \"kv-bytes\"?", or where none is near, `otherwise`.
std::string DidYouMean(std::string_view given, const std::set<std::string>& known,
                       std::string_view otherwise);

}  // namespace tandem
