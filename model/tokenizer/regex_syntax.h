#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// A pattern of a tokenizer.json (Oniguruma syntax) in the syntax of PCRE2, with the same matches.
// What the two read differently is rewritten (\s, \d, \w, \v, \uHHHH, {,n}) or refused
// (UNIMPLEMENTED, naming it): anchors, back references, class operations, options in the middle.
absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern);

}  // namespace tandem
