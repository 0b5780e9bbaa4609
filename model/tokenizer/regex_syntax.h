#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Translates a pattern of a tokenizer.json from Oniguruma's syntax to that of PCRE2, with the same
// matches. Syntax that the two interpret differently is rewritten (\s, \d, \w, \v, \uHHHH, {,n}) or
// refused with UNIMPLEMENTED, which names it: anchors (except in the pattern \s+$), back
// references, class operations, options inside the pattern.
absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern);

}  // namespace tandem
