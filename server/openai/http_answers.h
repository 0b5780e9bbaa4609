#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/http/http_exchange.h"
#include "server/openai/answer_writer.h"
#include "server/openai/api_error.h"
#include "server/openai/json_body.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

HttpResponse JsonResponse(const Json& json);
// The answer to a request that failed: OpenAI's error object, and headers that say whether and when
// to ask again. request_id: empty for none.
HttpResponse ErrorResponse(const absl::Status& status, const std::string& request_id);
// An error whose body has another form than OpenAI's. `error` determines the status and the
// headers.
HttpResponse ErrorResponse(const ApiError& error, const Json& body, const std::string& request_id);

inline constexpr AnswerStyle kOpenAiStyle = {.error = ErrorResponse};

// Adds the header x-request-id, and a header `other_name` with the same value unless that is empty.
void AddAnswerHeaders(const std::string& request_id, std::vector<HttpHeader>& headers,
                      std::string_view other_name = {});
// Adds x-tandem-route, x-tandem-prefill-worker and x-tandem-decode-worker.
void AddRouteHeaders(const v1::ChoiceFinish& finish, std::vector<HttpHeader>& headers);

// The client's x-request-id if it can be the name of a request, else a new one.
std::string RequestIdOf(const HttpRequest& request);
// Replaces `request_id` by the field request_id of the body, if that is a valid id.
void TakeRequestId(const Json& body, std::string& request_id);

}  // namespace tandem::openai
