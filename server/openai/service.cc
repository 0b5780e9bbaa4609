#include "server/openai/service.h"

#include <utility>

#include "server/openai/endpoints.h"

namespace tandem::openai {

Service::Service(ServiceParts parts)
    : parts_(std::move(parts)),
      texts_(parts_.tokenizer),
      completions_(NewCompletionFormat(texts_)),
      chats_(NewChatFormat(texts_)) {}

std::vector<HttpRoute> Service::Routes() const {
  using Endpoint = void (*)(const ServiceParts&, std::shared_ptr<HttpExchange>);
  const auto to = [this](Endpoint endpoint) -> HttpHandler {
    return [this, endpoint](std::shared_ptr<HttpExchange> exchange) {
      endpoint(parts_, std::move(exchange));
    };
  };
  const auto complete = [this](std::shared_ptr<HttpExchange> exchange) {
    AnswerCompletion(parts_, *completions_, std::move(exchange));
  };
  const auto chat = [this](std::shared_ptr<HttpExchange> exchange) {
    AnswerChat(parts_, *chats_, std::move(exchange));
  };
  return {
      {"GET", "/v1/models", to(AnswerModels)},
      {"GET", "/v1/models/", to(AnswerModel), HttpMatch::kPrefix},
      {"POST", "/v1/completions", complete},
      {"POST", "/v1/chat/completions", chat},
      {"POST", "/v1/responses", to(AnswerResponses)},
      {"POST", "/v1/responses/input_tokens", to(AnswerResponsesTokens)},
      {"GET", "/v1/responses/", to(RefuseStoredResponse), HttpMatch::kPrefix},
      {"POST", "/v1/responses/", to(RefuseStoredResponse), HttpMatch::kPrefix},
      {"DELETE", "/v1/responses/", to(RefuseStoredResponse), HttpMatch::kPrefix},
      {"POST", "/tokenize", to(AnswerTokenize)},
      {"POST", "/detokenize", to(AnswerDetokenize)},
      {"GET", "/tokenizer_info", to(AnswerTokenizerInfo)},
      {"GET", "/load", to(AnswerLoad)},
  };
}

}  // namespace tandem::openai
