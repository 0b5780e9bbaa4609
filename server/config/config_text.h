#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// `key = value`, or `key = ["one", "two"]`.
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // at least one
  int line = 0;                     // of the file, from 1 on
};

// `[name]`, and the entries below it.
struct ConfigSection {
  std::string name;
  int line = 0;
  std::vector<ConfigEntry> entries;
};

inline constexpr size_t kMostConfigBytes = 1 << 20;

// The sections of a configuration file, in their order. The form is the part of TOML that flags need:
// sections, keys, texts with or without quotes, lists in brackets, and comments behind # or at the
// start of a line behind ;. A key without a value means true. INVALID_ARGUMENT names the line: a key
// outside of sections, a section or a key that is there twice, a list or a text that does not end.
absl::StatusOr<std::vector<ConfigSection>> ParseConfigText(std::string_view text);

}  // namespace tandem
