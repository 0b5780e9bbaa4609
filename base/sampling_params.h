#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tandem {

inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr int32_t kMaxBeamWidth = 16;
inline constexpr float kMaxLengthPenalty = 10;  // either sign

// How a request wants its tokens chosen; the defaults are those of the public API.
struct SamplingParams {
  float temperature = 1;  // 0: greedy
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint64_t seed = 0;
  int32_t num_logprobs = -1;  // -1: none; 0: of the sampled token; n: and of the n most probable

  // Checks the ranges of all fields. The router checks what a client sends, and a worker checks
  // again what a router sends. INVALID_ARGUMENT names the field, its value and its range.
  absl::Status Validate() const;
};

// Checks num_logprobs of a request that asks for log-probabilities of its output.
absl::Status CheckLogprobs(int32_t num_logprobs);
// Checks num_logprobs of a request that asks for log-probabilities of its prompt.
absl::Status CheckPromptLogprobs(int32_t num_logprobs);

// How a request wants its beams searched; the fields and defaults of the public API.
struct BeamParams {
  enum class EarlyStopping : uint8_t { kHeuristic, kFirst, kNever };

  int32_t width = 2;
  float length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;

  // Checks the ranges of all fields. Errors as SamplingParams::Validate.
  absl::Status Validate() const;
};

// The number of continuations that a step of a beam search ranks, over all beams together. Every
// live beam has at most one candidate per stop token among them, so at least `width` candidates go
// on.
int32_t BeamCandidates(int32_t width, int32_t num_stop_tokens);

}  // namespace tandem
