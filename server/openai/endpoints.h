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

// Answers POST /v1/responses, the count of its input tokens, and requests about an earlier
// response, which are refused because no response is kept.
void AnswerResponses(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerResponsesTokens(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void RefuseStoredResponse(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// Answers /tokenize, /detokenize and /tokenizer_info.
void AnswerTokenize(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerDetokenize(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerTokenizerInfo(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// /v1/models, and /v1/models/{id}.
void AnswerModels(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerModel(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// Answers with the number of requests in flight.
void AnswerLoad(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

}  // namespace tandem::openai
