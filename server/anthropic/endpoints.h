#pragma once

#include <memory>
#include <vector>

#include "server/http/http_exchange.h"
#include "server/http/http_route.h"
#include "server/openai/service_parts.h"

namespace tandem::anthropic {

// POST /v1/messages, and /v1/messages/count_tokens. `parts` outlives the exchanges.
void AnswerMessages(const openai::ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);
void AnswerCountTokens(const openai::ServiceParts& parts, std::shared_ptr<HttpExchange> exchange);

// The routes of Anthropic's Messages API (docs/anthropic.md).
std::vector<HttpRoute> Routes(const openai::ServiceParts& parts);

}  // namespace tandem::anthropic
