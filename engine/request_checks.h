#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/request.h"

namespace tandem {

// The largest requests that a worker accepts.
struct EngineLimits {
  int32_t vocab_size = 0;
  int32_t max_context_tokens = 0;  // prompt and output together
  int32_t max_width = 0;           // choices, or beams: each is a row of a step
  int32_t sliding_window = 0;      // of the model's attention; 0: none
};

// Checks a request, its so_far included. INVALID_ARGUMENT names the field and its value.
absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits);

// Checks a request of role decode as CheckRequest does, and its first tokens.
absl::Status CheckDecode(const DecodeRequest& decode, const EngineLimits& limits);

}  // namespace tandem
