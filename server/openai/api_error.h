#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/openai/json_body.h"

namespace tandem::openai {

// An error as OpenAI's clients read it.
struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type;   // "invalid_request_error", "rate_limit_error", "server_error"
  std::string param;  // the field at fault; empty: none
  std::string code;   // such as "model_not_found"; empty: none
  std::optional<std::chrono::milliseconds> retry_after;
  // What x-should-retry says. OpenAI's clients retry every 429 and 5xx by themselves.
  bool retriable = false;
};

// Attaches to a status the field of the body that it is about, in a payload of the status.
void SetParam(absl::Status& status, std::string_view param);
absl::Status WithParam(absl::Status status, std::string_view param);

// The answer to a request that ended with `status`, which is not OK.
ApiError ToApiError(const absl::Status& status);

// The body of an answer with this error: {"error": {...}}.
Json ErrorJson(const ApiError& error);

}  // namespace tandem::openai
