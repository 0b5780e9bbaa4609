#include <optional>
#include <utility>

#include "base/status.h"
#include "server/openai/api_error.h"
#include "server/openai/endpoints.h"
#include "server/openai/http_answers.h"

namespace tandem::openai {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

// The kinds of prompts that this server accepts, so that clients need not find out by trying.
Json PromptsJson(const ServiceParts& parts) {
  Json kinds = Json::array({"token_ids"});
  if (parts.tokenizer != nullptr) kinds.push_back("text");
  if (parts.tokenizer != nullptr && parts.chat != nullptr) kinds.push_back("messages");
  return kinds;
}

Json ModelJson(const ServiceParts& parts) {
  Json json;
  json["id"] = parts.model.name;
  json["object"] = "model";
  json["created"] = parts.model.created;
  json["owned_by"] = "tandem";
  json["name"] = parts.model.name;
  json["root"] = parts.model.name;
  json["parent"] = nullptr;
  json["max_model_len"] = parts.router.CurrentLimits(v1::ROUTE_AUTO).max_context_tokens;
  json["permission"] = Json::array();
  json["prompts"] = PromptsJson(parts);
  return json;
}

}  // namespace

void AnswerModels(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array({ModelJson(parts)});
  exchange->Respond(JsonResponse(json));
}

void AnswerModel(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const std::string_view path = exchange->request().path;
  const std::optional<std::string> name =
      DecodePercent(path.substr(std::min(path.size(), kModelsPath.size())));
  if (name == parts.model.name) return exchange->Respond(JsonResponse(ModelJson(parts)));
  exchange->Respond(ErrorResponse(
      WithParam(NotFound("The model {} does not exist; this server has {}.",
                         JsonString(name.value_or("").substr(0, 80)), parts.model.name),
                "model"),
      ""));
}

void AnswerLoad(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  Json json;
  json["server_load"] = parts.router.Status().requests_in_flight();
  exchange->Respond(JsonResponse(json));
}

}  // namespace tandem::openai
