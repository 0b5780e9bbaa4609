#include <utility>

#include "base/status.h"
#include "server/openai/api_error.h"
#include "server/openai/completion_request.h"
#include "server/openai/endpoints.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"

namespace tandem::openai {
namespace {

// A completion whose prompts are being prepared.
struct PendingCompletion {
  std::shared_ptr<HttpExchange> exchange;
  std::string request_id;
  CompletionRequest completion;
};

absl::StatusOr<CompletionRequest> ParseCompletionBody(const ServiceParts& parts,
                                                      HttpExchange& exchange,
                                                      std::string& request_id) {
  ASSIGN_OR_RETURN(const Json body, ParseJsonBody(exchange.TakeBody()));
  TakeRequestId(body, request_id);
  return ParseCompletion(body, [&](v1::GenerateRequest& fields) {
    if (fields.request_id().empty()) fields.set_request_id(request_id);
    ReadHeaders(exchange.request(), fields);
    return ValidateFields(parts, fields);
  });
}

// Checks what the router will check, before anything is tokenized.
absl::Status ValidateCompletion(const ServiceParts& parts, const CompletionRequest& completion) {
  RETURN_IF_ERROR(CheckChoices(parts, completion.prompts.front(), completion.prompts.size()));
  const RequestLimits limits = parts.router.CurrentLimits(completion.prompts.front().route());
  for (const v1::GenerateRequest& prompt : completion.prompts) {
    RETURN_IF_ERROR(ValidateRequest(prompt, limits));
  }
  return absl::OkStatus();
}

// Puts token ids in the place of texts.
absl::Status EncodeTexts(const Tokenizer& tokenizer, CompletionRequest& completion) {
  const EncodeOptions options = {.add_template = completion.add_special_tokens ? Template::kAdd
                                                                               : Template::kOmit};
  for (v1::GenerateRequest& prompt : completion.prompts) {
    if (!prompt.has_text()) continue;
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(prompt.text(), options));
    prompt.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  }
  return absl::OkStatus();
}

// Keeps the last tokens of a prompt only, where the client wants that. True: some were dropped.
bool Truncate(v1::GenerateRequest& request) {
  if (!request.has_truncate_prompt_tokens()) return false;
  auto& ids = *request.mutable_token_ids()->mutable_ids();
  const int extra = ids.size() - request.truncate_prompt_tokens();
  request.clear_truncate_prompt_tokens();
  if (extra <= 0) return false;
  ids.erase(ids.begin(), ids.begin() + extra);
  return true;
}

// What the answer says of the prompt. `text`: as the client wrote it, or empty.
absl::StatusOr<PromptInfo> InfoOf(const Tokenizer* tokenizer, std::string text,
                                  const v1::GenerateRequest& request) {
  const auto& ids = request.token_ids().ids();
  PromptInfo info{.text = std::move(text), .token_ids = {ids.begin(), ids.end()}, .logprobs = {}};
  if (!info.text.empty() || tokenizer == nullptr) return info;
  ASSIGN_OR_RETURN(info.text, tokenizer->Decode(info.token_ids, SkipSpecial::kYes));
  return info;
}

absl::Status BeginCompletion(const ServiceParts& parts, const AnswerFormat& format,
                             PendingCompletion& pending, std::vector<std::string> texts) {
  std::vector<CallPrompt> prompts;
  CompletionRequest& completion = pending.completion;
  for (size_t i = 0; i < completion.prompts.size(); ++i) {
    v1::GenerateRequest& request = completion.prompts[i];
    PromptInfo info;
    if (completion.needs_token_ids()) {
      if (Truncate(request)) texts[i].clear();
      ASSIGN_OR_RETURN(info, InfoOf(parts.tokenizer, std::move(texts[i]), request));
    }
    prompts.push_back({.request = std::move(request), .info = std::move(info)});
  }
  Generate(parts, format, completion.answer, pending.exchange, pending.request_id,
           std::move(prompts));
  return absl::OkStatus();
}

std::vector<std::string> PromptTexts(const CompletionRequest& completion) {
  std::vector<std::string> texts;
  for (const v1::GenerateRequest& prompt : completion.prompts) texts.push_back(prompt.text());
  return texts;
}

void TokenizeFirst(const ServiceParts& parts, const AnswerFormat& format,
                   const std::shared_ptr<PendingCompletion>& pending) {
  std::vector<std::string> texts = PromptTexts(pending->completion);
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  const auto encode =
      [pending](const Tokenizer& tokenizer) -> absl::StatusOr<std::vector<int32_t>> {
    RETURN_IF_ERROR(EncodeTexts(tokenizer, pending->completion));
    return std::vector<int32_t>();  // EncodeTexts has put the ids into the requests
  };
  const auto done = [&parts, &format, pending,
                     texts = std::move(texts)](const absl::StatusOr<std::vector<int32_t>>& ids) {
    const absl::Status begun =
        ids.ok() ? BeginCompletion(parts, format, *pending, texts) : ids.status();
    if (!begun.ok()) pending->exchange->Respond(ErrorResponse(begun, pending->request_id));
  };
  parts.router.Tokenize(TokenizeWork(bytes, encode), WatchClient(*pending->exchange), done);
}

}  // namespace

void AnswerCompletion(const ServiceParts& parts, const AnswerFormat& format,
                      std::shared_ptr<HttpExchange> exchange) {
  std::string request_id = RequestIdOf(exchange->request());
  absl::StatusOr<CompletionRequest> completion = ParseCompletionBody(parts, *exchange, request_id);
  if (!completion.ok()) return exchange->Respond(ErrorResponse(completion.status(), request_id));
  const bool tokenize = completion->needs_token_ids() && completion->prompts.front().has_text();
  const auto pending = std::make_shared<PendingCompletion>(
      PendingCompletion{std::move(exchange), request_id, *std::move(completion)});
  absl::Status status = ValidateCompletion(parts, pending->completion);
  if (status.ok() && tokenize) return TokenizeFirst(parts, format, pending);
  if (status.ok()) {
    status = BeginCompletion(parts, format, *pending,
                             std::vector<std::string>(pending->completion.prompts.size()));
  }
  if (!status.ok()) pending->exchange->Respond(ErrorResponse(status, request_id));
}

}  // namespace tandem::openai
