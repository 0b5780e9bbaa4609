#pragma once

#include <cstdint>

namespace tandem {

// Bits of a value of K and of V, each 3 to 8. K needs more: an error there changes which tokens are
// attended to.
struct QuantisedBits {
  int32_t k = 6;
  int32_t v = 5;
};

inline constexpr int32_t kLeastQuantisedBits = 3;
inline constexpr int32_t kMostQuantisedBits = 8;

}  // namespace tandem
