#pragma once

#include <cstdint>

#include "model/checkpoint/strict_json.h"

namespace tandem {

// The ranges of sizes that several readers of config.json check. They end far above any published
// model, so that no product of sizes overflows an int64 and nothing absurd is allocated.
inline constexpr Range<int32_t> kLayers{1, 1 << 10};
inline constexpr Range<int32_t> kPositions{1, 1 << 27};

}  // namespace tandem
