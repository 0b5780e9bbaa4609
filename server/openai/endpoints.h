#pragma once

#include <memory>

#include "server/http/http_exchange.h"
#include "server/openai/answer_format.h"
#include "server/openai/service_parts.h"

namespace tandem::openai {

// The endpoints that generate. `parts` and `format` outlive the exchanges.
void AnswerCompletion(const ServiceParts& parts, const AnswerFormat& format,
                      std::shared_ptr<HttpExchange> exchange);
void AnswerChat(const ServiceParts& parts, const AnswerFormat& format,
                std::shared_ptr<HttpExchange> exchange);

// /v1/responses, the number of tokens of its input, and what is asked of a response that was answered
// before: none is kept.
void AnswerResponses(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerResponsesTokens(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void RefuseStoredResponse(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// Text to tokens and back, and what is known of the tokenizer.
void AnswerTokenize(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerDetokenize(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerTokenizerInfo(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// /v1/models, and /v1/models/{id}.
void AnswerModels(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerModel(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// The requests in flight.
void AnswerLoad(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

}  // namespace tandem::openai
