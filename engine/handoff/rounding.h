#pragma once

#include <cstdint>

#include "base/kv_quality.h"
#include "kvstore/codec/quantised.h"

namespace tandem {

// What a class of quality does to KV, and which tokens it spares: the first ones, which every query attends
// to, and the latest.
struct Rounding {
  QuantisedBits bits;
  int32_t exact_front = 0;
  int32_t exact_back = 0;
};

// The class that rounds KV as `quality` does: kTiny is kCompact with fewer tokens.
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
