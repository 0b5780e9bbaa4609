#pragma once

#include "absl/status/statusor.h"
#include "server/openai/api_error.h"
#include "server/openai/chat_request.h"
#include "server/openai/json_body.h"

namespace tandem::openai {

// The body of POST /v1/responses.
struct ResponsesRequest {
  ChatRequest chat;
  Json echo;  // the fields of the request that the response repeats, as the API has them
};

// Parses the body and moves fields out of it. Errors name the field: INVALID_ARGUMENT, or
// UNIMPLEMENTED for what needs a stored response or a tool that the server would run. The fields
// that chat completions have, too, are named as there, so RenameForResponses must be applied to the
// errors.
absl::StatusOr<ResponsesRequest> ParseResponses(Json body);

// Gives a field of a chat the name that it has in this API.
void RenameForResponses(ApiError& error);

}  // namespace tandem::openai
