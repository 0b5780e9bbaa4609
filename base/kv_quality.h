#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

// What the KV of a prompt may lose on its way to a decode worker, in falling order of quality
// (docs/hand_off.md#quality-classes). Only kExact keeps answers the same wherever a prompt is
// computed. kTiny means that KV is evicted as well (base/token_eviction.h).
enum class KvQuality : uint8_t {
  kExact,       // loses nothing
  kNearStrict,  // half of the bytes
  kNear,        // less than two fifths
  kCompact,     // less than a quarter
  kTiny,        // a sixth; only the tokens that attention needs most
};

inline constexpr std::array<std::string_view, 5> kKvQualityNames = {"exact", "near-strict", "near",
                                                                    "compact", "tiny"};

constexpr std::string_view Name(KvQuality quality) {
  return kKvQualityNames[static_cast<size_t>(quality)];
}

constexpr std::optional<KvQuality> KvQualityFromName(std::string_view name) {
  for (size_t i = 0; i < kKvQualityNames.size(); ++i) {
    if (kKvQualityNames[i] == name) return static_cast<KvQuality>(i);
  }
  return std::nullopt;
}

}  // namespace tandem
