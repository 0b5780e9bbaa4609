#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/request.h"

namespace tandem {

// What requests a worker can take.
struct EngineLimits {
  int32_t vocab_size = 0;
  int32_t max_context_tokens = 0;  // prompt and output together
  int32_t max_width = 0;           // choices, or beams: each is a row of a step
};

// INVALID_ARGUMENT naming what cannot be and its value, so_far included.
absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits);

// The same of a request that comes to decode, with what it begins with.
absl::Status CheckDecode(const DecodeRequest& decode, const EngineLimits& limits);

}  // namespace tandem
