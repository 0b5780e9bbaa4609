#include "model/answer/probe.h"

#include <utility>
#include <vector>

#include "base/json.h"

namespace tandem::probe {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxRendered = size_t{64} << 10;  // a prompt is searched in more than linear time

std::string IdOf(CallStyle::Id style, int call) {
  if (style == CallStyle::Id::kShort) return call == 0 ? "probeid01" : "probeid02";
  if (style == CallStyle::Id::kLong)
    return call == 0 ? "call_probe_identity_1" : "call_probe_identity_2";
  return "functions." + std::string(kNames[call]) + ":" + std::to_string(call);
}

}  // namespace

Json Arguments() {
  Json arguments = Json::object();
  arguments[std::string(kKeys[0])] = kTextValue;
  arguments[std::string(kKeys[1])] = kNumberValue;
  return arguments;
}

Json Assistant(Json content) {
  Json message = Json::object();
  message["role"] = "assistant";
  message["content"] = std::move(content);
  return message;
}

Json WithCalls(int num_calls, const CallStyle& style) {
  Json message = Assistant(nullptr);
  for (int i = 0; i < num_calls; ++i) {
    Json function = Json::object();
    function["name"] = kNames[i];
    function["arguments"] = style.string_arguments ? Json(JsonText(Arguments())) : Arguments();
    Json call = Json::object();
    call["id"] = IdOf(style.id, i);
    call["type"] = "function";
    call["function"] = std::move(function);
    message["tool_calls"].push_back(std::move(call));
  }
  return message;
}

std::optional<std::string> Rendered(const ChatTemplate& chat, const Json& assistant, Tools tools,
                                    Ends ends) {
  ChatInput input;
  Json question = Json::object();
  question["role"] = "user";
  question["content"] = "probe-question";
  input.messages = Json::array();
  input.messages.push_back(question);
  input.add_generation_prompt = assistant.is_null();
  if (!assistant.is_null()) input.messages.push_back(assistant);
  if (ends == Ends::kGoesOn) input.messages.push_back(question);
  if (tools == Tools::kGiven) {
    input.tools = ParseOrderedJson(R"([{"type": "function", "function": {"name": "probe_declared",
        "description": "probe", "parameters": {"type": "object", "properties": {"probe_first":
        {"type": "string", "description": "probe"}}, "required": ["probe_first"]}}}])")
                      .value;
  }
  const absl::StatusOr<std::vector<TextPart>> parts = chat.Render(input);
  if (!parts.ok()) return std::nullopt;
  std::string text = JoinParts(*parts);
  if (text.size() > kMaxRendered) return std::nullopt;
  return text;
}

}  // namespace tandem::probe
