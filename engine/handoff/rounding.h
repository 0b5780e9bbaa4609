#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/kv_quality.h"

namespace tandem {

// How a class of quality rounds KV. The first tokens of the prompt, which every query attends to,
// are not rounded.
struct Rounding {
  float step = 0;  // see NewRoundedCodec; 0: nothing is rounded
  int32_t exact_front = 0;
};

// The classes that round KV, each in steps of its own.
inline constexpr std::array kRoundingClasses = {KvQuality::kNearStrict, KvQuality::kNear,
                                                KvQuality::kCompact, KvQuality::kTiny};

inline Rounding RoundingOf(KvQuality quality) {
  constexpr int32_t kExactTokens = 4;
  switch (quality) {
    case KvQuality::kExact:
      return {};
    case KvQuality::kNearStrict:
      return {.step = 0.027f, .exact_front = kExactTokens};
    case KvQuality::kNear:
      return {.step = 0.09f, .exact_front = kExactTokens};
    case KvQuality::kCompact:
      return {.step = 0.385f, .exact_front = kExactTokens};
    case KvQuality::kTiny:
      return {.step = 0.6f, .exact_front = kExactTokens};
  }
  return {};
}

// The steps of all classes that round.
inline std::vector<float> RoundingSteps() {
  std::vector<float> steps;
  for (const KvQuality quality : kRoundingClasses) steps.push_back(RoundingOf(quality).step);
  return steps;
}

}  // namespace tandem
