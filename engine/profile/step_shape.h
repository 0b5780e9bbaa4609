#pragma once

#include <cstdint>

#include "scheduler/latency_model/step_features.h"

namespace tandem {

// One step to be measured: a chunk of one prompt beside sequences that decode. Either may be
// absent.
struct StepShape {
  int32_t prefill_tokens = 0;
  int32_t cached_tokens = 0;   // tokens of the prompt before the chunk
  int32_t sequences = 0;       // sequences that decode
  int32_t context_tokens = 0;  // context that each decoding sequence reads

  StepFeatures features() const {
    return {.prefill_tokens = prefill_tokens,
            .prefill_pairs = CausalPairs(cached_tokens, int64_t{cached_tokens} + prefill_tokens),
            .decode_sequences = sequences,
            .decode_context = int64_t{sequences} * context_tokens};
  }
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

// The least context to measure with: with less, steps would not show what a token of context costs.
inline constexpr int32_t kLeastMeasuredContext = 64;

// The largest steps that are measured.
struct StepLimits {
  int32_t max_step_tokens = 0;     // of chunk and decodes together
  int32_t max_sequences = 0;       // sequences that decode
  int32_t max_context_tokens = 0;  // of each decoding sequence, and of the prompt before the chunk
};

}  // namespace tandem
