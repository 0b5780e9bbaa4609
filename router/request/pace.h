#pragma once

#include <cstdint>

namespace tandem {

// kLive: the event was sent when it was generated, so a reader can keep up. kWhole: it is part of
// an answer that is sent in one piece, which no reader can keep up with; only the sum of all such
// answers is bounded.
enum class Pace : uint8_t { kLive, kWhole };

}  // namespace tandem
