#pragma once

#include <cstdint>

namespace tandem {

// What one attempt is expected to ask of its workers.
struct ExpectedWork {
  int32_t prompt_tokens = 0;       // with the output that the client has already
  double output_tokens = 1;        // of each sequence, the first one of this attempt included
  int32_t most_output_tokens = 1;  // of each sequence, if its output takes all of max_tokens
};

}  // namespace tandem
