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

// Takes what headers say of a request where its body does not: x-session-id, and the SLOs under the
// names of llm-d's headers. The tenant of the caller's API key takes the place of the one that the body
// names.
void ReadHeaders(const HttpRequest& http, v1::GenerateRequest& request);

// The router's own check of all fields but the prompt, which need not be there yet.
absl::Status ValidateFields(const ServiceParts& parts, const v1::GenerateRequest& fields);
// INVALID_ARGUMENT when so many prompts have more choices together than may ever be in flight, which
// no later try would change.
absl::Status CheckChoices(const ServiceParts& parts, const v1::GenerateRequest& fields,
                          size_t prompts);

// Whether the client has gone, for Router::Tokenize. The exchange's OnGone is taken for it, until
// Generate takes it over.
std::function<bool()> WatchClient(HttpExchange& exchange);

// What the events of an answer to this request begin with.
AnswerHead HeadOf(const ServiceParts& parts, const std::string& request_id);

// Has the router generate for the requests, and answers the exchange with what the writer makes of it.
void Generate(const ServiceParts& parts, std::unique_ptr<AnswerWriter> writer,
              std::shared_ptr<HttpExchange> exchange, const std::string& request_id,
              std::vector<v1::GenerateRequest> requests);
// The same with an answer that has choices.
void Generate(const ServiceParts& parts, const AnswerFormat& format, const AnswerOptions& options,
              std::shared_ptr<HttpExchange> exchange, const std::string& request_id,
              std::vector<CallPrompt> prompts);

// Renders and encodes messages. RESOURCE_EXHAUSTED and INVALID_ARGUMENT as Router::Tokenize and
// ChatTemplate::Render. `input` is moved from when the work runs.
absl::StatusOr<TokenizeWork> ChatWork(const ServiceParts& parts, ChatInput input, Template add,
                                      const RequestLimits& limits, size_t text_bytes);

}  // namespace tandem::openai
