#include <array>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "server/openai/answer_format.h"
#include "server/openai/api_error.h"
#include "server/openai/api_fields.h"
#include "server/openai/finish_json.h"
#include "server/openai/http_answers.h"
#include "server/openai/logprobs_json.h"

namespace tandem::openai {
namespace {

constexpr std::array<FieldName, 1> kNewerNames = {{{"max_tokens", "max_completion_tokens"}}};

HttpResponse ChatError(const absl::Status& status, const std::string& request_id,
                       std::span<const FieldName> names) {
  ApiError error = ToApiError(status);
  error.message = ReplaceInvalidUtf8(error.message);
  // What the router calls the prompt, clients of this API know as messages.
  if (error.param == "prompt") error.param = "messages";
  RenameFields(names, error);
  return ErrorResponse(error, ErrorJson(error), request_id);
}

HttpResponse OlderChatError(const absl::Status& status, const std::string& request_id) {
  return ChatError(status, request_id, {});
}

HttpResponse NewerChatError(const absl::Status& status, const std::string& request_id) {
  return ChatError(status, request_id, kNewerNames);
}

constexpr AnswerStyle kOlderChatStyle = {.error = OlderChatError};
constexpr AnswerStyle kNewerChatStyle = {.error = NewerChatError};

// The parts of an answer that a message or a delta has in separate fields.
struct Parts {
  std::string content;
  std::string reasoning;
  Json calls = Json::array();
};

// The entry of a tool call in `calls`, which is added if it is not the last one: the events of one
// call are consecutive.
Json& EntryOf(int32_t call, Json& calls) {
  if (!calls.empty() && calls.back()["index"] == call) return calls.back();
  Json entry;
  entry["index"] = call;
  calls.push_back(std::move(entry));
  return calls.back();
}

void AddCall(const AnswerEvent& event, Json& calls) {
  Json& entry = EntryOf(event.call, calls);
  if (event.kind == AnswerEvent::Kind::kCallBegin) {
    entry["id"] = event.id;
    entry["type"] = "function";
    entry["function"]["name"] = event.name;
    entry["function"]["arguments"] = "";
    return;
  }
  Json& arguments = entry["function"]["arguments"];
  if (arguments.is_null()) arguments = "";
  arguments.get_ref<std::string&>() += event.text;
}

Parts PartsOf(const Piece& piece, const AnswerOptions& options) {
  Parts parts;
  if (!piece.events) parts.content = piece.text;
  if (!piece.events) return parts;
  for (const AnswerEvent& event : *piece.events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kContent:
        parts.content += event.text;
        break;
      case AnswerEvent::Kind::kReasoning:
        if (options.include_reasoning) parts.reasoning += event.text;
        break;
      case AnswerEvent::Kind::kCallBegin:
      case AnswerEvent::Kind::kArguments:
        if (event.call == 0 || options.parallel_tool_calls) AddCall(event, parts.calls);
        break;
      case AnswerEvent::Kind::kCallEnd:
        break;
    }
  }
  return parts;
}

// Adds reasoning under both names that clients read: the one of llama.cpp and DeepSeek, and the one
// of vLLM.
void AddReasoning(const std::string& reasoning, Json& json) {
  if (reasoning.empty()) return;
  json["reasoning_content"] = reasoning;
  json["reasoning"] = reasoning;
}

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(const TokenTexts& texts) : texts_(texts) {}

  const AnswerStyle& style(const AnswerOptions& options) const override {
    return options.max_completion_tokens ? kNewerChatStyle : kOlderChatStyle;
  }
  std::string_view id_prefix() const override { return "chatcmpl-"; }
  std::string_view object() const override { return "chat.completion"; }
  std::string_view chunk_object() const override { return "chat.completion.chunk"; }

  // The role is sent in an event of its own, but not before the first token, because clients that
  // measure TTFT take the first event for the first token.
  std::vector<Json> Deltas(const Piece& piece, const AnswerOptions& options) const override {
    std::vector<Json> deltas;
    if (piece.first) {
      Json role;
      role["role"] = "assistant";
      role["content"] = "";
      Json choice = Delta(piece.index, std::move(role));
      choice["finish_reason"] = nullptr;
      deltas.push_back(std::move(choice));
    }
    Parts parts = PartsOf(piece, options);
    Json delta = Json::object();
    AddReasoning(parts.reasoning, delta);
    const bool is_text = !piece.events && !piece.finish;  // plain text: an event for each token
    if (!parts.content.empty() || is_text) delta["content"] = std::move(parts.content);
    if (!parts.calls.empty()) delta["tool_calls"] = std::move(parts.calls);
    const bool says_nothing =
        delta.empty() && !piece.finish && piece.logprobs.empty() && !options.return_token_ids;
    if (says_nothing) return deltas;
    Json choice = Delta(piece.index, std::move(delta));
    if (options.logprobs && !piece.logprobs.empty()) choice["logprobs"] = Logprobs(piece, options);
    AddFinish(piece, choice);
    if (options.return_token_ids) choice["token_ids"] = piece.token_ids;
    deltas.push_back(std::move(choice));
    return deltas;
  }

  Json Choice(const Piece& piece, const AnswerOptions& options) const override {
    Parts parts = PartsOf(piece, options);
    Json message;
    message["role"] = "assistant";
    message["content"] = std::move(parts.content);
    if (!parts.calls.empty() && message["content"] == "") message["content"] = nullptr;
    message["refusal"] = nullptr;
    AddReasoning(parts.reasoning, message);
    if (!parts.calls.empty()) {
      for (Json& call : parts.calls) call.erase("index");  // which only deltas have
      message["tool_calls"] = std::move(parts.calls);
    }
    Json choice;
    choice["index"] = piece.index;
    choice["message"] = std::move(message);
    choice["logprobs"] = options.logprobs ? Logprobs(piece, options) : Json(nullptr);
    AddFinish(piece, choice);
    if (options.return_token_ids) choice["token_ids"] = piece.token_ids;
    return choice;
  }

 private:
  static Json Delta(int32_t index, Json delta) {
    Json choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = nullptr;
    return choice;
  }

  Json Logprobs(const Piece& piece, const AnswerOptions& options) const {
    return ChatLogprobs(piece, texts_,
                        options.tokens_as_ids ? TokenNames::kIds : TokenNames::kTexts);
  }

  const TokenTexts& texts_;
};

}  // namespace

std::unique_ptr<AnswerFormat> NewChatFormat(const TokenTexts& texts) {
  return std::make_unique<ChatFormat>(texts);
}

}  // namespace tandem::openai
