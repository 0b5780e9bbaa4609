#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/openai/chat_request.h"
#include "server/openai/json_body.h"

namespace tandem::anthropic {

// Requests that count tokens have no limit of their output.
enum class MaxTokens : uint8_t { kRequired, kUnused };

// The chat that the body of POST /v1/messages asks for. Errors name the field: INVALID_ARGUMENT, or
// UNIMPLEMENTED for content other than text and for tools that the server would have to run.
absl::StatusOr<openai::ChatRequest> ParseMessages(openai::Json body, MaxTokens max_tokens);

}  // namespace tandem::anthropic
