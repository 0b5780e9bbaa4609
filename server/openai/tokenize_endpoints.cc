#include <utility>

#include "base/status.h"
#include "server/openai/api_error.h"
#include "server/openai/body_fields.h"
#include "server/openai/chat_request.h"
#include "server/openai/endpoints.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"

namespace tandem::openai {
namespace {

// The body of POST /tokenize, without its text.
struct TokenizeOptions {
  std::string model;
  bool return_token_strs = false;
};

absl::Status CheckModel(const RequestLimits& limits, const std::string& model) {
  if (model.empty() || model == limits.model) return absl::OkStatus();
  return WithParam(NotFound("The model {} does not exist; this server has {}.",
                            JsonString(model.substr(0, 80)), limits.model),
                   "model");
}

absl::StatusOr<TokenizeWork> TextWork(const BodyFields& body) {
  std::string text;
  RETURN_IF_ERROR(body.Read("prompt", text));
  if (body.Find("prompt") == nullptr) {
    return WithParam(InvalidArgument("prompt is missing: give a text, or messages"), "prompt");
  }
  bool add = true;
  RETURN_IF_ERROR(body.Read("add_special_tokens", add));
  return TokenizeWork(std::move(text),
                      EncodeOptions{.add_template = add ? Template::kAdd : Template::kOmit});
}

absl::StatusOr<TokenizeWork> ParseTokenize(const ServiceParts& parts, HttpExchange& exchange,
                                           const RequestLimits& limits, TokenizeOptions& options) {
  const size_t bytes = exchange.request().body.size();
  ASSIGN_OR_RETURN(Json json, ParseJsonBody(exchange.TakeBody()));
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  RETURN_IF_ERROR(body.Read("model", options.model));
  RETURN_IF_ERROR(CheckModel(limits, options.model));
  RETURN_IF_ERROR(body.Read("return_token_strs", options.return_token_strs));
  if (body.Find("messages") == nullptr) return TextWork(body);
  bool add = false;
  RETURN_IF_ERROR(body.Read("add_special_tokens", add));
  ASSIGN_OR_RETURN(ChatInput input, TakeChatInput(json));
  return ChatWork(parts, std::move(input), add ? Template::kAdd : Template::kOmit, limits, bytes);
}

Json TokensJson(const ServiceParts& parts, const RequestLimits& limits,
                const std::vector<int32_t>& ids, const TokenizeOptions& options) {
  Json json;
  json["count"] = ids.size();
  json["max_model_len"] = limits.max_context_tokens;
  json["tokens"] = ids;
  json["token_strs"] = nullptr;
  if (!options.return_token_strs) return json;
  Json texts = Json::array();
  for (const int32_t id : ids) texts.push_back(parts.tokenizer->Spelling(id));
  json["token_strs"] = std::move(texts);
  return json;
}

absl::StatusOr<Json> Detokenize(const ServiceParts& parts, HttpExchange& exchange) {
  if (parts.tokenizer == nullptr) {
    return FailedPrecondition("model {} has no tokenizer.json here", parts.model.name);
  }
  const RequestLimits limits = parts.router.CurrentLimits(v1::ROUTE_AUTO);
  ASSIGN_OR_RETURN(const Json json, ParseJsonBody(exchange.TakeBody()));
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  std::string model;
  RETURN_IF_ERROR(body.Read("model", model));
  RETURN_IF_ERROR(CheckModel(limits, model));
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(body.Read("tokens", ids));
  if (body.Find("tokens") == nullptr) {
    return WithParam(InvalidArgument("tokens is missing: give a list of token ids"), "tokens");
  }
  if (ids.size() > static_cast<size_t>(limits.max_context_tokens)) {
    return WithParam(InvalidArgument("tokens has {} ids; a context has at most {}", ids.size(),
                                     limits.max_context_tokens),
                     "tokens");
  }
  absl::StatusOr<std::string> text = parts.tokenizer->Decode(ids, SkipSpecial::kNo);
  if (!text.ok()) return WithParam(text.status(), "tokens");
  Json answer;
  answer["prompt"] = *std::move(text);
  return answer;
}

}  // namespace

void AnswerTokenize(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const RequestLimits limits = parts.router.CurrentLimits(v1::ROUTE_AUTO);
  TokenizeOptions options;
  absl::StatusOr<TokenizeWork> work = ParseTokenize(parts, *exchange, limits, options);
  if (!work.ok()) return exchange->Respond(ErrorResponse(work.status(), ""));
  parts.router.Tokenize(
      *std::move(work), WatchClient(*exchange),
      [&parts, exchange, limits, options](const absl::StatusOr<std::vector<int32_t>>& ids) {
        if (!ids.ok()) return exchange->Respond(ErrorResponse(ids.status(), ""));
        exchange->Respond(JsonResponse(TokensJson(parts, limits, *ids, options)));
      });
}

void AnswerDetokenize(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<Json> answer = Detokenize(parts, *exchange);
  exchange->Respond(answer.ok() ? JsonResponse(*answer) : ErrorResponse(answer.status(), ""));
}

void AnswerTokenizerInfo(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  if (parts.tokenizer == nullptr) {
    return exchange->Respond(ErrorResponse(
        FailedPrecondition("model {} has no tokenizer.json here", parts.model.name), ""));
  }
  exchange->Respond(JsonResponse(parts.model.tokenizer_info));
}

}  // namespace tandem::openai
