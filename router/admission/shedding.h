#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

// Which requests are refused because their first token is predicted to come too late.
enum class Shedding : uint8_t {
  kOff,
  kDeadline,  // requests whose deadline would have passed
  kSlo,       // those of kDeadline, and requests whose TTFT SLO would be missed
};

inline constexpr std::array<std::string_view, 3> kSheddingNames = {"off", "deadline", "slo"};

inline std::optional<Shedding> ParseShedding(std::string_view name) {
  for (size_t i = 0; i < kSheddingNames.size(); ++i) {
    if (kSheddingNames[i] == name) return static_cast<Shedding>(i);
  }
  return std::nullopt;
}

}  // namespace tandem
