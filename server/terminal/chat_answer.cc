#include "server/terminal/chat_answer.h"

#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "fmt/format.h"

namespace tandem::terminal {
namespace {

using Json = nlohmann::json;

// The member of a JSON object with that name; null if there is none.
const Json* Find(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

std::string Text(const Json& json, const char* name) {
  const Json* member = Find(json, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : std::string();
}

double Number(const Json& json, const char* name) {
  const Json* member = Find(json, name);
  return member != nullptr && member->is_number() ? member->get<double>() : 0.0;
}

std::optional<AnswerTiming> TimingOf(const Json& event) {
  const Json* timing = Find(event, "timing");
  if (timing == nullptr || !timing->is_array() || timing->empty()) return std::nullopt;
  const Json& first = timing->front();
  return AnswerTiming{.route = Text(first, "route"),
                      .prefill_worker = Text(first, "prefill_worker"),
                      .decode_worker = Text(first, "decode_worker"),
                      .ttft_ms = Number(first, "time_to_first_token_ms"),
                      .itl_ms = Number(first, "mean_itl_ms")};
}

}  // namespace

std::vector<AnswerPiece> ChatAnswer::Add(std::string_view data) {
  ending_.Add(data);
  std::vector<AnswerPiece> pieces;
  const Json event = ParseJson(data);
  if (auto timing = TimingOf(event)) timing_ = std::move(timing);
  const Json* choices = Find(event, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return pieces;
  if (const Json* delta = Find(choices->front(), "delta")) AddDelta(*delta, pieces);
  return pieces;
}

void ChatAnswer::AddDelta(const Json& delta, std::vector<AnswerPiece>& pieces) {
  std::string reasoning = Text(delta, "reasoning_content");
  if (reasoning.empty()) reasoning = Text(delta, "reasoning");
  if (!reasoning.empty()) {
    reasoning_ += reasoning;
    pieces.push_back({PieceKind::kReasoning, std::move(reasoning)});
  }
  std::string content = Text(delta, "content");
  if (!content.empty()) {
    content_ += content;
    pieces.push_back({PieceKind::kContent, std::move(content)});
  }
  const Json* calls = Find(delta, "tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (const Json& call : *calls) AddToolCall(call, pieces);
}

// Adds a delta of a tool call: its first delta has the name, later ones have pieces of the
// arguments.
void ChatAnswer::AddToolCall(const Json& call, std::vector<AnswerPiece>& pieces) {
  static const Json kNone = Json::object();
  const Json* function = Find(call, "function");
  if (function == nullptr) function = &kNone;
  const std::string name = Text(*function, "name");
  const std::string arguments = Text(*function, "arguments");
  if (!name.empty() || calls_.empty()) {
    calls_.push_back({.id = Text(call, "id"), .name = name, .arguments = {}});
    pieces.push_back({PieceKind::kToolCall, fmt::format("[calls {}] ", name)});
  }
  calls_.back().arguments += arguments;
  if (!arguments.empty()) pieces.push_back({PieceKind::kToolCall, arguments});
}

absl::Status ChatAnswer::End(absl::Status transport) {
  end_ = ending_.Take(std::move(transport));
  if (!end_.status.ok()) return end_.status;
  if (end_.whole) return absl::OkStatus();
  return DataLoss("the answer was cut off: the server closed the connection in the middle of it");
}

nlohmann::ordered_json ChatAnswer::Message() const {
  nlohmann::ordered_json message = {{"role", "assistant"}, {"content", content_}};
  // The reasoning is sent back with the chat; the chat template leaves it out where the model must
  // not see it again.
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  for (const ToolCall& call : calls_) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

}  // namespace tandem::terminal
