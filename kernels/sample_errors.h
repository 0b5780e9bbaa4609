#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "base/status.h"

namespace tandem {

// The errors of every backend when a row of Ops::Sample has no token.

inline absl::Status OverflowedRow(size_t row) {
  return Internal("sample: logits of row {} hold a NaN or an infinity: the model overflowed", row);
}

inline absl::Status AllExcluded(size_t row) {
  return InvalidArgument(
      "sample: row {} excludes every token: bad_words, allowed_token_ids and min_tokens leave "
      "none that may follow",
      row);
}

}  // namespace tandem
