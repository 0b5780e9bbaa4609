#include "server/openai/completion_request.h"

#include <optional>
#include <utility>

#include "server/openai/api_error.h"
#include "server/openai/common_fields.h"

namespace tandem::openai {
namespace {

constexpr int32_t kDefaultMaxTokens = 16;
// A request id is cut to this length before the number of a prompt is appended, so that the result
// is a valid id.
constexpr size_t kMaxIdPrefix = 120;

absl::Status BadPrompt(const Json& prompt) {
  return WithParam(
      InvalidArgument("prompt must be a string, a list of strings, a list of token ids "
                      "or a list of such lists; it is {}{}",
                      KindOf(prompt), prompt.is_array() ? " of something else" : ""),
      "prompt");
}

// Reads one prompt from a list of token ids. `name` is the prompt's name in errors.
absl::Status ReadTokenIds(const Json& ids, const std::string& name, v1::GenerateRequest& request) {
  v1::TokenIds& tokens = *request.mutable_token_ids();
  tokens.mutable_ids()->Reserve(static_cast<int>(ids.size()));
  for (const Json& id : ids) {
    const std::optional<int32_t> number = AsInt32(id);
    if (!number) {
      return WithParam(
          InvalidArgument("{}[{}] must be a token id; it is {}", name, tokens.ids_size(),
                          id.is_number() ? JsonText(id) : KindOf(id)),
          "prompt");
    }
    tokens.add_ids(*number);
  }
  return absl::OkStatus();
}

absl::Status AddPrompt(const Json& prompt, const std::string& name,
                       const v1::GenerateRequest& common, CompletionRequest& completion) {
  v1::GenerateRequest& request = completion.prompts.emplace_back(common);
  if (prompt.is_string()) {
    request.set_text(prompt.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  return ReadTokenIds(prompt, name, request);
}

absl::Status AddPrompts(const Json& prompts, const v1::GenerateRequest& common,
                        CompletionRequest& completion) {
  if (prompts.size() > kMaxPrompts) {
    return WithParam(
        InvalidArgument("prompt has {} prompts; at most {} are taken", prompts.size(), kMaxPrompts),
        "prompt");
  }
  const bool texts = prompts.front().is_string();
  for (const Json& prompt : prompts) {
    const bool alike = texts ? prompt.is_string() : prompt.is_array();
    if (!alike) return BadPrompt(prompts);
    const std::string name = fmt::format("prompt[{}]", completion.prompts.size());
    RETURN_IF_ERROR(AddPrompt(prompt, name, common, completion));
  }
  // Every request in flight has its own name at the router.
  if (common.request_id().empty() || completion.prompts.size() == 1) return absl::OkStatus();
  const std::string prefix = common.request_id().substr(0, kMaxIdPrefix);
  for (size_t i = 0; i < completion.prompts.size(); ++i) {
    completion.prompts[i].set_request_id(fmt::format("{}-{}", prefix, i));
  }
  return absl::OkStatus();
}

absl::Status ReadPrompts(const BodyFields& body, const v1::GenerateRequest& common,
                         CompletionRequest& completion) {
  const Json* prompt = body.Find("prompt");
  if (prompt == nullptr) return WithParam(InvalidArgument("prompt is missing"), "prompt");
  if (prompt->is_string()) return AddPrompt(*prompt, "prompt", common, completion);
  if (!prompt->is_array()) return BadPrompt(*prompt);
  if (prompt->empty()) return WithParam(InvalidArgument("prompt is an empty list"), "prompt");
  if (prompt->front().is_number()) return AddPrompt(*prompt, "prompt", common, completion);
  if (!prompt->front().is_string() && !prompt->front().is_array()) return BadPrompt(*prompt);
  return AddPrompts(*prompt, common, completion);
}

absl::Status ReadCompletionLogprobs(const BodyFields& body, v1::GenerateRequest& request,
                                    AnswerOptions& answer) {
  std::optional<int32_t> logprobs;
  // Clients made for chat completions send false here.
  const Json* value = body.Find("logprobs");
  if (value != nullptr && !(value->is_boolean() && IsNeutral(*value))) {
    RETURN_IF_ERROR(body.Read("logprobs", logprobs));
  }
  if (!logprobs) return absl::OkStatus();
  answer.logprobs = true;
  request.mutable_sampling()->set_logprobs(*logprobs);
  if (!answer.echo) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPromptLogprobs(request, "echo"));
  if (!request.has_prompt_logprobs()) request.set_prompt_logprobs(*logprobs);
  return absl::OkStatus();
}

absl::Status ReadCompletionMaxTokens(const BodyFields& body, v1::GenerateRequest& request,
                                     const AnswerOptions& answer) {
  int32_t max_tokens = kDefaultMaxTokens;
  RETURN_IF_ERROR(body.Read("max_tokens", max_tokens));
  if (max_tokens == 0) {
    if (!answer.echo && !answer.prompt_logprobs) {
      return WithParam(
          InvalidArgument("max_tokens=0 asks for nothing: give 1 or more, or echo=true "
                          "for the prompt"),
          "max_tokens");
    }
    // max_tokens=0 asks for the prompt's part of the answer alone, so its log-probabilities must be
    // computed.
    if (!request.has_prompt_logprobs()) request.set_prompt_logprobs(0);
  }
  request.set_max_tokens(max_tokens);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletion(const Json& json,
                                                  const CompleteFields& complete) {
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  CompletionRequest completion;
  v1::GenerateRequest common;
  RETURN_IF_ERROR(ReadCommonFields(body, common, completion.answer));
  RETURN_IF_ERROR(body.Read("echo", completion.answer.echo));
  RETURN_IF_ERROR(ReadCompletionLogprobs(body, common, completion.answer));
  RETURN_IF_ERROR(ReadCompletionMaxTokens(body, common, completion.answer));
  RETURN_IF_ERROR(body.Read("add_special_tokens", completion.add_special_tokens));
  if (const Json* suffix = body.Find("suffix"); suffix != nullptr && !IsNeutral(*suffix)) {
    return WithParam(Unimplemented("suffix is not supported: text cannot be filled in before it"),
                     "suffix");
  }
  if (complete) RETURN_IF_ERROR(complete(common));
  RETURN_IF_ERROR(ReadPrompts(body, common, completion));
  return completion;
}

}  // namespace tandem::openai
