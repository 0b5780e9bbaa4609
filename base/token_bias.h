#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr float kMaxLogitBias = 100;  // either sign

// A number that is added to the logit of a token.
struct TokenBias {
  int32_t token_id = 0;
  float bias = 0;
};

}  // namespace tandem
