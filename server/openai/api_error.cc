#include "server/openai/api_error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "base/retry_after.h"

namespace tandem::openai {
namespace {

constexpr char kParamPayload[] = "tandem/openai-param";
constexpr std::chrono::milliseconds kDefaultRetryAfter(1000);
constexpr char kInvalidRequest[] = "invalid_request_error";
constexpr char kServerError[] = "server_error";

struct HttpKind {
  int http_status;
  const char* type;
  const char* code;
  bool retriable;
};

HttpKind HttpKindOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return {400, kInvalidRequest, "", false};
    case absl::StatusCode::kUnimplemented:
      return {400, kInvalidRequest, "unsupported_value", false};
    case absl::StatusCode::kNotFound:
      return {404, kInvalidRequest, "model_not_found", false};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded", true};
    case absl::StatusCode::kUnavailable:
      return {503, kServerError, "unavailable", true};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, kServerError, "timeout", false};
    case absl::StatusCode::kCancelled:
      return {499, kInvalidRequest, "cancelled", false};
    default:
      return {500, kServerError, "", true};
  }
}

std::string_view FirstWord(std::string_view message) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  return message.substr(0, message.find_first_not_of(kLetters));
}

// Replaces the router's fields "text" and "token_ids" at the beginning of a message by "prompt",
// because clients over HTTP do not know them.
void NamePrompt(std::string& message) {
  const std::string_view word = FirstWord(message);
  if (word == "text" || word == "token_ids") message.replace(0, word.size(), "prompt");
}

// The field of the body that a message of the router is about. Such messages begin with it, as
// "max_tokens=0 must ...".
std::string FieldOf(std::string_view message) {
  const std::string_view word = FirstWord(message);
  for (const std::string_view field : {"model",
                                       "prompt",
                                       "messages",
                                       "tools",
                                       "max_tokens",
                                       "min_tokens",
                                       "n",
                                       "best_of",
                                       "stop",
                                       "stop_token_ids",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "repetition_penalty",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "logprobs",
                                       "prompt_logprobs",
                                       "logit_bias",
                                       "allowed_token_ids",
                                       "bad_words",
                                       "truncate_prompt_tokens",
                                       "length_penalty",
                                       "route",
                                       "tenant",
                                       "cache_salt",
                                       "kv_quality",
                                       "kv_eviction",
                                       "session_id",
                                       "request_id",
                                       "ttft_slo_ms",
                                       "tpot_slo_ms"}) {
    if (word == field) return std::string(word);
  }
  return "";
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

void SetParam(absl::Status& status, std::string_view param) {
  status.SetPayload(kParamPayload, absl::Cord(absl::string_view(param.data(), param.size())));
}

absl::Status WithParam(absl::Status status, std::string_view param) {
  SetParam(status, param);
  return status;
}

ApiError ToApiError(const absl::Status& status) {
  const HttpKind kind = HttpKindOf(status.code());
  ApiError error{.http_status = kind.http_status,
                 .message = std::string(status.message()),
                 .type = kind.type,
                 .param = {},
                 .code = kind.code,
                 .retry_after = RetryAfter(status),
                 .retriable = kind.retriable};
  if (const auto param = status.GetPayload(kParamPayload)) {
    error.param = std::string(*param);
  } else if (kind.http_status == 400 || kind.http_status == 404) {
    NamePrompt(error.message);
    error.param = FieldOf(error.message);
  }
  const bool later = kind.http_status == 429 || kind.http_status == 503;
  if (later && !error.retry_after) error.retry_after = kDefaultRetryAfter;
  return error;
}

Json ErrorJson(const ApiError& error) {
  Json fields;
  fields["message"] = error.message;
  fields["type"] = error.type;
  fields["param"] = TextOrNull(error.param);
  fields["code"] = TextOrNull(error.code);
  Json json;
  json["error"] = std::move(fields);
  return json;
}

}  // namespace tandem::openai
