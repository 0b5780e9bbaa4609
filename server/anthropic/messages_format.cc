#include "server/anthropic/messages_format.h"

#include <utility>

#include "server/anthropic/messages_error.h"
#include "server/http/http_message.h"
#include "server/openai/finish_json.h"

namespace tandem::anthropic {
namespace {

using openai::Json;
using openai::Turn;
using openai::TurnPart;
using Kind = openai::TurnPart::Kind;

std::string Event(const Json& event) {
  return SseEvent(event["type"].get_ref<const std::string&>(), JsonText(event));
}

Json BlockEvent(const char* type, size_t index) {
  Json event;
  event["type"] = type;
  event["index"] = index;
  return event;
}

// The arguments of a tool call as the "input" of its block. Arguments that are no JSON object,
// because they were cut off or the model wrote them wrong, become an object that holds their text:
// clients accept nothing but objects.
Json InputOf(const std::string& arguments) {
  if (arguments.empty()) return Json::object();
  absl::StatusOr<Json> input = openai::ParseJsonBody(arguments);
  if (input.ok() && input->is_object()) return *std::move(input);
  Json raw;
  raw["raw_arguments"] = arguments;
  return raw;
}

// The content block for a part of the answer, which holds `text`; that is empty where a block only
// begins.
Json Block(const TurnPart& part, const std::string& text) {
  Json block;
  switch (part.kind) {
    case Kind::kText:
      block["type"] = "text";
      block["text"] = text;
      break;
    case Kind::kReasoning:
      block["type"] = "thinking";
      block["thinking"] = text;
      block["signature"] = "";
      break;
    case Kind::kCall:
      block["type"] = "tool_use";
      block["id"] = part.call_id;
      block["name"] = part.name;
      block["input"] = InputOf(text);
      break;
  }
  return block;
}

// Sets "stop_reason" and "stop_sequence".
void AddStop(const Turn& turn, Json& json) {
  const std::string stop = turn.finish ? turn.finish->stop() : "";
  json["stop_reason"] = turn.IsCutOff()   ? "max_tokens"
                        : turn.HasCalls() ? "tool_use"
                        : stop.empty()    ? "end_turn"
                                          : "stop_sequence";
  json["stop_sequence"] = stop.empty() ? Json(nullptr) : Json(stop);
}

Json UsageJson(int64_t input, int64_t cached, int64_t output) {
  Json usage;
  usage["input_tokens"] = input - cached;
  usage["cache_creation_input_tokens"] = 0;
  usage["cache_read_input_tokens"] = cached;
  usage["output_tokens"] = output;
  return usage;
}

Json UsageJson(const Turn& turn) {
  return UsageJson(turn.usage.prompt_tokens(), turn.usage.cached_tokens(),
                   turn.usage.completion_tokens());
}

class MessagesFormat final : public openai::TurnFormat {
 public:
  MessagesFormat(openai::AnswerHead head, int64_t prompt_tokens, bool return_timing)
      : head_(std::move(head)), prompt_tokens_(prompt_tokens), return_timing_(return_timing) {}

  const openai::AnswerStyle& style() const override { return kMessagesStyle; }

  // The event "message_start". It reports no cached tokens, because their number is known only at
  // the end of the answer.
  std::string Begin() override {
    Json message = Head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = UsageJson(prompt_tokens_, 0, 0);
    Json event;
    event["type"] = "message_start";
    event["message"] = std::move(message);
    return Event(event);
  }

  std::string BeginPart(const Turn& turn, size_t index) override {
    Json event = BlockEvent("content_block_start", index);
    event["content_block"] = Block(turn.parts[index], "");
    return Event(event);
  }

  std::string Grow(const Turn& turn, size_t index, std::string_view more) override {
    Json event = BlockEvent("content_block_delta", index);
    Json& delta = event["delta"];
    switch (turn.parts[index].kind) {
      case Kind::kText:
        delta["type"] = "text_delta";
        delta["text"] = more;
        break;
      case Kind::kReasoning:
        delta["type"] = "thinking_delta";
        delta["thinking"] = more;
        break;
      case Kind::kCall:
        delta["type"] = "input_json_delta";
        delta["partial_json"] = more;
        break;
    }
    return Event(event);
  }

  std::string EndPart(const Turn&, size_t index) override {
    return Event(BlockEvent("content_block_stop", index));
  }

  std::string End(const Turn& turn) override {
    Json event;
    event["type"] = "message_delta";
    AddStop(turn, event["delta"]);
    event["usage"] = UsageJson(turn);
    if (return_timing_ && turn.finish) event["timing"] = openai::TimingJson(*turn.finish);
    Json stop;
    stop["type"] = "message_stop";
    return Event(event) + Event(stop);
  }

  std::string Error(const Turn&, const absl::Status& status) override {
    return Event(ErrorJson(status, head_.id));
  }

  Json Whole(const Turn& turn) override {
    Json message = Head();
    message["content"] = Json::array();
    for (const TurnPart& part : turn.parts) message["content"].push_back(Block(part, part.text));
    AddStop(turn, message);
    message["usage"] = UsageJson(turn);
    if (return_timing_ && turn.finish) message["timing"] = openai::TimingJson(*turn.finish);
    return message;
  }

 private:
  Json Head() const {
    Json message;
    message["id"] = "msg_" + head_.id;
    message["type"] = "message";
    message["role"] = "assistant";
    message["model"] = head_.model;
    return message;
  }

  const openai::AnswerHead head_;
  const int64_t prompt_tokens_;
  const bool return_timing_;
};

}  // namespace

const openai::AnswerStyle kMessagesStyle = {
    .error = ErrorResponse,
    .id_header = kIdHeader,
    .keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n"};

std::unique_ptr<openai::TurnFormat> NewMessagesFormat(openai::AnswerHead head,
                                                      int64_t prompt_tokens, bool return_timing) {
  return std::make_unique<MessagesFormat>(std::move(head), prompt_tokens, return_timing);
}

}  // namespace tandem::anthropic
