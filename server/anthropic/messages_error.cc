#include "server/anthropic/messages_error.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "server/openai/api_error.h"
#include "server/openai/api_fields.h"
#include "server/openai/http_answers.h"

namespace tandem::anthropic {
namespace {

using openai::ApiError;
using openai::Json;

constexpr std::array<openai::FieldName, 4> kNames = {{{"max_completion_tokens", "max_tokens"},
                                                      {"stop", "stop_sequences"},
                                                      {"reasoning_effort", "output_config.effort"},
                                                      {"response_format", "output_config.format"}}};

const char* TypeOf(int http_status) {
  switch (http_status) {
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

ApiError ErrorOf(const absl::Status& status) {
  ApiError error = openai::ToApiError(status);
  error.message = ReplaceInvalidUtf8(error.message);
  openai::RenameFields(kNames, error);
  return error;
}

Json JsonOf(const ApiError& error, const std::string& request_id) {
  Json json;
  json["type"] = "error";
  json["error"]["type"] = TypeOf(error.http_status);
  json["error"]["message"] = error.message;
  json["request_id"] = request_id;
  return json;
}

}  // namespace

Json ErrorJson(const absl::Status& status, const std::string& request_id) {
  return JsonOf(ErrorOf(status), request_id);
}

HttpResponse ErrorResponse(const absl::Status& status, const std::string& request_id) {
  const ApiError error = ErrorOf(status);
  HttpResponse response = openai::ErrorResponse(error, JsonOf(error, request_id), request_id);
  response.headers.push_back({kIdHeader, request_id});
  return response;
}

}  // namespace tandem::anthropic
