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

// Takes the fields out of `body`. INVALID_ARGUMENT, and UNIMPLEMENTED for what needs an answer that is
// kept here or a tool that is run here; both name the field. RenameForResponses is to be applied to
// them, because what is common with chats has their names.
absl::StatusOr<ResponsesRequest> ParseResponses(Json body);

// Gives a field of a chat the name that it has in this API.
void RenameForResponses(ApiError& error);

}  // namespace tandem::openai
