#include "server/openai/chat_request.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/sampling_params.h"
#include "server/openai/api_error.h"
#include "server/openai/api_fields.h"
#include "server/openai/common_fields.h"

namespace tandem::openai {
namespace {

constexpr RefusedField kRefusedInChat[] = {
    {"functions", "use tools"},
    {"function_call", "use tools"},
    {"audio", "answers are text"},
    {"web_search_options", "there is no search"},
    {"chat_template", "templates of clients are not run; the server's is used"},
    {"mm_processor_kwargs", "messages are text"},
    {"echo", "it goes with /v1/completions only"},
};

absl::Status CheckModalities(const BodyFields& body) {
  std::vector<std::string> modalities;
  RETURN_IF_ERROR(body.Read("modalities", modalities));
  for (const std::string& modality : modalities) {
    if (modality == "text") continue;
    return WithParam(
        Unimplemented("modalities has {}: answers are text", JsonString(modality.substr(0, 40))),
        "modalities");
  }
  return absl::OkStatus();
}

absl::Status ReadChatLogprobs(const BodyFields& body, v1::GenerateRequest& request,
                              AnswerOptions& answer) {
  RETURN_IF_ERROR(body.Read("logprobs", answer.logprobs));
  std::optional<int32_t> top;
  RETURN_IF_ERROR(body.Read("top_logprobs", top));
  if (answer.logprobs) {
    const int32_t wanted = top.value_or(0);
    if (!CheckLogprobs(wanted).ok()) {
      return WithParam(InvalidArgument("top_logprobs={} must be in [0, {}]", wanted, kMaxLogprobs),
                       "top_logprobs");
    }
    request.mutable_sampling()->set_logprobs(wanted);
    return absl::OkStatus();
  }
  if (top.value_or(0) == 0) return absl::OkStatus();
  return WithParam(InvalidArgument("top_logprobs={} goes with logprobs=true only", *top),
                   "top_logprobs");
}

absl::Status ReadChatMaxTokens(const BodyFields& body, v1::GenerateRequest& request,
                               AnswerOptions& answer) {
  std::optional<int32_t> max_tokens;
  std::optional<int32_t> max_completion_tokens;
  RETURN_IF_ERROR(body.Read("max_tokens", max_tokens));
  RETURN_IF_ERROR(body.Read("max_completion_tokens", max_completion_tokens));
  answer.max_completion_tokens = max_completion_tokens.has_value();
  if (max_completion_tokens) max_tokens = max_completion_tokens;
  if (max_tokens) request.set_max_tokens(*max_tokens);
  return absl::OkStatus();
}

// Refuses every tool_choice that demands a call: this server cannot constrain generated text to the
// form of a call.
absl::Status CheckToolChoice(const BodyFields& body) {
  const Json* choice = body.Find("tool_choice");
  if (choice == nullptr) return absl::OkStatus();
  if (*choice == "none" || (*choice == "auto" && body.Find("tools") != nullptr)) {
    return absl::OkStatus();
  }
  if (body.Find("tools") == nullptr) {
    return WithParam(
        InvalidArgument("tool_choice={} goes with tools only", JsonText(*choice).substr(0, 80)),
        "tool_choice");
  }
  return WithParam(
      Unimplemented(
          "tool_choice={} is not supported: no grammar holds what a model writes to the "
          "form of a call here, so that it cannot be made to call a tool; use \"auto\" or "
          "\"none\"",
          JsonText(*choice).substr(0, 80)),
      "tool_choice");
}

// `mend`: what to do about a list without elements.
absl::Status CheckList(const BodyFields& body, std::string_view name, std::string_view mend) {
  const Json* list = body.Find(name);
  if (list == nullptr) return absl::OkStatus();
  if (!list->is_array()) {
    return WithParam(InvalidArgument("{} must be a list; it is {}", name, KindOf(*list)), name);
  }
  if (!list->empty()) return absl::OkStatus();
  return WithParam(InvalidArgument("{} is an empty list: {}", name, mend), name);
}

// Reads the variables of the chat template: chat_template_kwargs, and OpenAI's field
// reasoning_effort, which some templates read.
absl::Status ReadVariables(const BodyFields& body, Json& variables) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> given, body.Object("chat_template_kwargs"));
  if (given) variables = given->json();
  std::optional<std::string> effort;
  RETURN_IF_ERROR(body.Read("reasoning_effort", effort));
  if (effort && !variables.contains("reasoning_effort")) variables["reasoning_effort"] = *effort;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatInput> TakeChatInput(Json& json) {
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  ChatInput input;
  if (body.Find("messages") == nullptr) {
    return WithParam(InvalidArgument("messages is missing"), "messages");
  }
  RETURN_IF_ERROR(CheckList(body, "messages", "give at least one"));
  RETURN_IF_ERROR(CheckList(body, "tools", "leave it out"));
  RETURN_IF_ERROR(CheckList(body, "documents", "leave it out"));
  RETURN_IF_ERROR(CheckToolChoice(body));
  RETURN_IF_ERROR(ReadVariables(body, input.variables));
  RETURN_IF_ERROR(body.Read("continue_final_message", input.continue_final_message));
  input.add_generation_prompt = !input.continue_final_message;
  RETURN_IF_ERROR(body.Read("add_generation_prompt", input.add_generation_prompt));
  if (input.add_generation_prompt && input.continue_final_message) {
    return WithParam(
        InvalidArgument("continue_final_message=true goes with add_generation_prompt=false only"),
        "continue_final_message");
  }
  const Json* choice = body.Find("tool_choice");
  const bool without_tools = choice != nullptr && *choice == "none";
  input.now = std::chrono::system_clock::now();
  input.documents = TakeField(json, "documents");
  if (!without_tools) input.tools = TakeField(json, "tools");
  input.messages = TakeField(json, "messages");
  return input;
}

absl::StatusOr<ChatRequest> ParseChat(Json json) {
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  ChatRequest chat;
  RETURN_IF_ERROR(RefuseFields(body, kRefusedInChat));
  RETURN_IF_ERROR(CheckModalities(body));
  RETURN_IF_ERROR(ReadCommonFields(body, chat.request, chat.answer));
  RETURN_IF_ERROR(ReadChatLogprobs(body, chat.request, chat.answer));
  RETURN_IF_ERROR(ReadChatMaxTokens(body, chat.request, chat.answer));
  RETURN_IF_ERROR(body.Read("add_special_tokens", chat.add_special_tokens));
  RETURN_IF_ERROR(body.Read("include_reasoning", chat.answer.include_reasoning));
  RETURN_IF_ERROR(body.Read("parallel_tool_calls", chat.answer.parallel_tool_calls));
  ASSIGN_OR_RETURN(chat.input, TakeChatInput(json));
  chat.reading = {.has_tools = !chat.input.tools.is_null(),
                  .string_parameters = StringParametersOf(chat.input.tools)};
  return chat;
}

}  // namespace tandem::openai
