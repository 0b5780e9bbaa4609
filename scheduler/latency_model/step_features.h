#pragma once

#include <chrono>
#include <cstdint>

namespace tandem {

// A time as the latency model computes it: fractions of a millisecond matter, and it is never
// compared with a clock.
using ModelTime = std::chrono::duration<double, std::milli>;

// What one step computed, in the terms of the cost model (docs/cost_model.md).
struct StepFeatures {
  int32_t prefill_tokens = 0;  // N: tokens of prefill chunks that are computed
  int64_t prefill_pairs = 0;  // A: causal (query, key) pairs of these tokens, also with cached keys
  int32_t decode_sequences = 0;  // B: number of sequences that decode
  int64_t decode_context = 0;    // C: tokens of context that all decodes read together
};

// The causal (query, key) pairs of tokens [begin, end) of one sequence: token i attends to i + 1
// positions.
constexpr int64_t CausalPairs(int64_t begin, int64_t end) {
  return (end - begin) * (begin + end + 1) / 2;
}

}  // namespace tandem
