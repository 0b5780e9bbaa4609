#pragma once

#include <string_view>

namespace tandem {

// A simulated model is served under a name that begins with this, and no other model is: whoever
// sees the name knows that the tokens are made up.
inline constexpr std::string_view kSimulatedModelPrefix = "simulated/";

constexpr bool IsSimulatedModel(std::string_view name) {
  return name.starts_with(kSimulatedModelPrefix);
}

}  // namespace tandem
