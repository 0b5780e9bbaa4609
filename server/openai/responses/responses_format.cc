#include "server/openai/responses/responses_format.h"

#include <utility>

#include "base/utf8.h"
#include "fmt/format.h"
#include "server/http/http_message.h"
#include "server/openai/api_error.h"
#include "server/openai/finish_json.h"
#include "server/openai/http_answers.h"
#include "server/openai/responses/responses_request.h"

namespace tandem::openai {
namespace {

using Kind = TurnPart::Kind;

ApiError ErrorOf(const absl::Status& status) {
  ApiError error = ToApiError(status);
  error.message = ReplaceInvalidUtf8(error.message);
  RenameForResponses(error);
  return error;
}

HttpResponse RespondError(const absl::Status& status, const std::string& request_id) {
  const ApiError error = ErrorOf(status);
  return ErrorResponse(error, ErrorJson(error), request_id);
}

// The element of an item's "content" that holds a text or reasoning.
Json ContentPart(Kind kind, std::string_view text) {
  Json part;
  part["type"] = kind == Kind::kText ? "output_text" : "reasoning_text";
  if (kind == Kind::kText) {
    part["annotations"] = Json::array();
    part["logprobs"] = Json::array();
  }
  part["text"] = text;
  return part;
}

Json UsageJson(const Turn& turn) {
  const v1::Usage& usage = turn.usage;
  Json json;
  json["input_tokens"] = usage.prompt_tokens();
  json["input_tokens_details"] = {{"cached_tokens", usage.cached_tokens()},
                                  {"cache_write_tokens", 0}};
  json["output_tokens"] = usage.completion_tokens();
  json["output_tokens_details"] = {{"reasoning_tokens", turn.reasoning_tokens}};
  json["total_tokens"] = usage.prompt_tokens() + usage.completion_tokens();
  return json;
}

class ResponsesFormat final : public TurnFormat {
 public:
  ResponsesFormat(AnswerHead head, Json echo, bool return_timing)
      : head_(std::move(head)), echo_(std::move(echo)), return_timing_(return_timing) {}

  const AnswerStyle& style() const override { return kResponsesStyle; }

  // The two events that begin a stream. They have the sequence numbers 0 and 1 even if other events
  // are made before them, because the client gets these first.
  std::string Begin() override {
    const Json response = Response(Turn(), "in_progress");
    std::string events;
    int64_t number = 0;
    for (const char* type : {"response.created", "response.in_progress"}) {
      Json event;
      event["type"] = type;
      event["sequence_number"] = number++;
      event["response"] = response;
      events += SseEvent(type, JsonText(event));
    }
    return events;
  }

  std::string BeginPart(const Turn& turn, size_t index) override {
    const TurnPart& part = turn.parts[index];
    Json added = ItemEvent(index);
    added["item"] = Item(part, index, Phase::kBegun);
    std::string events = Event("response.output_item.added", std::move(added));
    if (part.kind != Kind::kCall) {
      Json content = ContentEvent(part, index);
      content["part"] = ContentPart(part.kind, "");
      events += Event("response.content_part.added", std::move(content));
    }
    return events;
  }

  std::string Grow(const Turn& turn, size_t index, std::string_view more) override {
    const TurnPart& part = turn.parts[index];
    Json event = ContentEvent(part, index);
    event["delta"] = more;
    if (part.kind == Kind::kText) event["logprobs"] = Json::array();
    return Event(std::string(TextName(part.kind)) + ".delta", std::move(event));
  }

  std::string EndPart(const Turn& turn, size_t index) override {
    const TurnPart& part = turn.parts[index];
    Json done = ContentEvent(part, index);
    done[part.kind == Kind::kCall ? "arguments" : "text"] = part.text;
    if (part.kind == Kind::kCall) done["name"] = part.name;
    if (part.kind == Kind::kText) done["logprobs"] = Json::array();
    std::string events = Event(std::string(TextName(part.kind)) + ".done", std::move(done));
    if (part.kind != Kind::kCall) {
      Json content = ContentEvent(part, index);
      content["part"] = ContentPart(part.kind, part.text);
      events += Event("response.content_part.done", std::move(content));
    }
    Json item = ItemEvent(index);
    item["item"] = Item(part, index, Phase::kEnded);
    return events + Event("response.output_item.done", std::move(item));
  }

  std::string End(const Turn& turn) override {
    Json event;
    event["response"] = Whole(turn);
    return Event(turn.IsCutOff() ? "response.incomplete" : "response.completed", std::move(event));
  }

  std::string Error(const Turn& turn, const absl::Status& status) override {
    const ApiError error = ErrorOf(status);
    Json event;
    event["code"] = error.code.empty() ? Json(error.type) : Json(error.code);
    event["message"] = error.message;
    event["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
    std::string events = Event("error", std::move(event));
    Json failed;
    failed["response"] = Response(turn, "failed");
    failed["response"]["error"] = {
        {"code", error.http_status == 429 ? "rate_limit_exceeded" : "server_error"},
        {"message", error.message}};
    return events + Event("response.failed", std::move(failed));
  }

  Json Whole(const Turn& turn) override {
    Json response = Response(turn, turn.IsCutOff() ? "incomplete" : "completed");
    response["usage"] = UsageJson(turn);
    if (return_timing_ && turn.finish) response["timing"] = TimingJson(*turn.finish);
    return response;
  }

 private:
  enum class Phase : bool { kBegun, kEnded };

  static std::string_view TextName(Kind kind) {
    switch (kind) {
      case Kind::kText:
        return "response.output_text";
      case Kind::kReasoning:
        return "response.reasoning_text";
      case Kind::kCall:
        return "response.function_call_arguments";
    }
    return "";
  }

  std::string IdOf(Kind kind, size_t index) const {
    const char* prefix = kind == Kind::kText ? "msg" : kind == Kind::kReasoning ? "rs" : "fc";
    return fmt::format("{}_{}_{}", prefix, head_.id, index);
  }

  Json Item(const TurnPart& part, size_t index, Phase phase) const {
    const bool ended = phase == Phase::kEnded;
    Json content = Json::array();
    if (ended) content.push_back(ContentPart(part.kind, part.text));
    Json item;
    item["id"] = IdOf(part.kind, index);
    item["status"] = !ended ? "in_progress" : part.is_complete ? "completed" : "incomplete";
    switch (part.kind) {
      case Kind::kText:
        item["type"] = "message";
        item["role"] = "assistant";
        item["content"] = std::move(content);
        break;
      case Kind::kReasoning:
        item["type"] = "reasoning";
        item["summary"] = Json::array();
        item["content"] = std::move(content);
        break;
      case Kind::kCall:
        item["type"] = "function_call";
        item["call_id"] = part.call_id;
        item["name"] = part.name;
        item["arguments"] = ended ? part.text : std::string();
        break;
    }
    return item;
  }

  Json Response(const Turn& turn, std::string_view status) const {
    Json output = Json::array();
    for (size_t i = 0; i < turn.parts.size(); ++i) {
      output.push_back(Item(turn.parts[i], i, Phase::kEnded));
    }
    Json response;
    response["id"] = "resp_" + head_.id;
    response["object"] = "response";
    response["created_at"] = head_.created;
    response["status"] = status;
    response["background"] = false;
    response["error"] = nullptr;
    response["incomplete_details"] = nullptr;
    if (status == "incomplete") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["model"] = head_.model;
    response["output"] = std::move(output);
    response["previous_response_id"] = nullptr;
    response["service_tier"] = "default";
    response["store"] = false;
    response["top_logprobs"] = 0;
    response["truncation"] = "disabled";
    response["usage"] = nullptr;
    for (const auto& [name, value] : echo_.items()) response[name] = value;
    return response;
  }

  static Json ItemEvent(size_t index) {
    Json event;
    event["output_index"] = index;
    return event;
  }

  // The common fields of an event about the content of an item, which has one element, or about the
  // arguments of a tool call.
  Json ContentEvent(const TurnPart& part, size_t index) const {
    Json event = ItemEvent(index);
    event["item_id"] = IdOf(part.kind, index);
    if (part.kind != Kind::kCall) event["content_index"] = 0;
    return event;
  }

  std::string Event(std::string_view type, Json fields) {
    Json event;
    event["type"] = type;
    event["sequence_number"] = next_number_++;
    for (auto& [name, value] : fields.items()) event[name] = std::move(value);
    return SseEvent(type, JsonText(event));
  }

  const AnswerHead head_;
  const Json echo_;
  const bool return_timing_;
  int64_t next_number_ = 2;  // 0 and 1 are those of Begin
};

}  // namespace

const AnswerStyle kResponsesStyle = {.error = RespondError};

std::unique_ptr<TurnFormat> NewResponsesFormat(AnswerHead head, Json echo, bool return_timing) {
  return std::make_unique<ResponsesFormat>(std::move(head), std::move(echo), return_timing);
}

}  // namespace tandem::openai
