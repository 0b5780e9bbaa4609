#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/openai/answer.h"
#include "server/openai/answer_options.h"
#include "server/openai/generate_call.h"
#include "server/openai/service_parts.h"

namespace tandem::openai {

// Takes from the headers what the body does not say: the session from x-session-id, and SLOs from
// the headers that llm-d defines. The tenant of the caller's API key overrides the tenant that the
// body names.
void ReadHeaders(const HttpRequest& http, v1::GenerateRequest& request);

// The router's own check of all fields but the prompt, which need not be there yet.
absl::Status ValidateFields(const ServiceParts& parts, const v1::GenerateRequest& fields);
// INVALID_ARGUMENT when so many prompts have more choices together than may ever be in flight,
// which no later try would change.
absl::Status CheckChoices(const ServiceParts& parts, const v1::GenerateRequest& fields,
                          size_t prompts);

// A function that says whether the client has gone, for Router::Tokenize. It uses the exchange's
// OnGone, which Generate later overrides.
std::function<bool()> WatchClient(HttpExchange& exchange);

// The fields with which the answer to this request, or each of its events, begins.
AnswerHead HeadOf(const ServiceParts& parts, const std::string& request_id);

// Has the router generate for the requests, and answers the exchange with what the writer makes of
// it.
void Generate(const ServiceParts& parts, std::unique_ptr<AnswerWriter> writer,
              std::shared_ptr<HttpExchange> exchange, const std::string& request_id,
              std::vector<v1::GenerateRequest> requests);
// Has the router generate for the prompts, and answers the exchange in an API with choices.
void Generate(const ServiceParts& parts, const AnswerFormat& format, const AnswerOptions& options,
              std::shared_ptr<HttpExchange> exchange, const std::string& request_id,
              std::vector<CallPrompt> prompts);

// The work of rendering and tokenizing messages, for Router::Tokenize. RESOURCE_EXHAUSTED and
// INVALID_ARGUMENT are those of Router::Tokenize and ChatTemplate::Render. `input` is consumed when
// the work runs.
absl::StatusOr<TokenizeWork> ChatWork(const ServiceParts& parts, ChatInput input, Template add,
                                      const RequestLimits& limits, size_t text_bytes);

}  // namespace tandem::openai
