#pragma once

#include <cstdint>

#include "base/kv_quality.h"
#include "kvstore/codec/quantised.h"

namespace tandem {

// How a class of quality rounds KV, and how many tokens it leaves unchanged: the first ones of the
// prompt, which every query attends to, and the latest.
struct Rounding {
  QuantisedBits bits;
  int32_t exact_front = 0;
  int32_t exact_back = 0;
};

// The quality class with the same rounding as `quality`: kTiny is kCompact with fewer tokens.
inline KvQuality RoundsAs(KvQuality quality) {
  return quality == KvQuality::kTiny ? KvQuality::kCompact : quality;
}

inline Rounding RoundingOf(KvQuality quality) {
  switch (quality) {
    case KvQuality::kExact:
    case KvQuality::kNearStrict:
      return {.bits = {.k = 8, .v = 8}};
    case KvQuality::kNear:
      return {.bits = {.k = 6, .v = 5}, .exact_front = 4, .exact_back = 20};
    case KvQuality::kCompact:
    case KvQuality::kTiny:
      return {.bits = {.k = 4, .v = 3}, .exact_front = 4, .exact_back = 12};
  }
  return {};
}

}  // namespace tandem
