#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/http/http_exchange.h"
#include "server/openai/json_body.h"

namespace tandem::anthropic {

// A header that has the request's id besides x-request-id.
inline constexpr char kIdHeader[] = "request-id";

// The error as Anthropic's clients read it: {"type": "error", "error": {"type", "message"},
// "request_id"}.
openai::Json ErrorJson(const absl::Status& status, const std::string& request_id);
HttpResponse ErrorResponse(const absl::Status& status, const std::string& request_id);

}  // namespace tandem::anthropic
