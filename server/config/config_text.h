#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// An entry of a configuration file: `key = value`, or `key = ["one", "two"]`.
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // at least one
  int line = 0;                     // line number in the file, counted from 1
};

// A section of a configuration file: `[name]`, and the entries below it.
struct ConfigSection {
  std::string name;
  int line = 0;
  std::vector<ConfigEntry> entries;
};

inline constexpr size_t kMostConfigBytes = 1 << 20;

// Parses a configuration file into its sections, in the order of the file. The syntax is the part
// of TOML that flags need: sections, keys, texts with or without quotes, lists in brackets, and
// comments behind # or at the start of a line behind ;. A key without a value means true.
// INVALID_ARGUMENT names the line of the error: a key outside of sections, a section or a key that
// occurs twice, a list or a text that does not end.
absl::StatusOr<std::vector<ConfigSection>> ParseConfigText(std::string_view text);

}  // namespace tandem
