#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/openai/chat_request.h"
#include "server/openai/json_body.h"

namespace tandem::anthropic {

// Requests that count tokens have no limit of their output.
enum class MaxTokens : uint8_t { kRequired, kUnused };

// The chat that the body of POST /v1/messages asks for. INVALID_ARGUMENT, and UNIMPLEMENTED for content
// other than text and for tools that would be run here; both name the field.
absl::StatusOr<openai::ChatRequest> ParseMessages(openai::Json body, MaxTokens max_tokens);

}  // namespace tandem::anthropic
