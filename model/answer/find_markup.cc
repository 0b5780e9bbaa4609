// Finds the marks of a model by what its chat template writes for small conversations. These call a
// tool that is not declared, so that its name is found where it is called and nowhere else.
#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json.h"
#include "model/answer/answer_reader.h"
#include "model/answer/json_scanner.h"
#include "model/answer/mark.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Form = CallMarkup::Form;

constexpr std::string_view kText = "probe-text";
constexpr std::string_view kThought = "probe-thought";
constexpr std::string_view kNames[] = {"probe_called", "probe_second"};
// The names of the parameters, in the order of the alphabet, because some templates sort them.
constexpr std::string_view kKeys[] = {"probe_key", "probe_other"};
// The values of the parameters: a text and a number, because some templates write them differently.
constexpr std::string_view kTextValue = "probe_value";
constexpr int kNumberValue = 90210;
constexpr std::string_view kValues[] = {kTextValue, "90210"};
constexpr size_t kMaxRendered = size_t{64} << 10;  // a prompt is searched in more than linear time
constexpr size_t kNone = std::string_view::npos;

struct CallStyle {
  enum class Id { kLong, kShort, kNamed };
  Id id = Id::kLong;
  bool string_arguments = false;
};

Json Arguments() {
  Json arguments = Json::object();
  arguments[std::string(kKeys[0])] = kTextValue;
  arguments[std::string(kKeys[1])] = kNumberValue;
  return arguments;
}

std::string IdOf(CallStyle::Id style, int call) {
  if (style == CallStyle::Id::kShort) return call == 0 ? "probeid01" : "probeid02";
  if (style == CallStyle::Id::kLong)
    return call == 0 ? "call_probe_identity_1" : "call_probe_identity_2";
  return "functions." + std::string(kNames[call]) + ":" + std::to_string(call);
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

enum class Tools { kGiven, kAbsent };

// Renders a question, and the assistant's message or, where that is null, the beginning of its
// answer; for kGoesOn another question follows. Nothing where the template refuses it.
enum class Ends { kThere, kGoesOn };
std::optional<std::string> Rendered(const ChatTemplate& chat, const Json& assistant, Tools tools,
                                    Ends ends = Ends::kThere) {
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

bool OpensTag(char c) { return c == '<' || c == '['; }
bool ClosesTag(char c) { return c == '>' || c == ']'; }

// The mark that `text` is: without white space around it, and with a space between its tags, where
// a model may write any white space.
std::string Mark(std::string_view text) {
  std::string mark;
  for (const char c : Trimmed(text)) {
    if (!mark.empty() && ClosesTag(mark.back()) && (OpensTag(c) || c == '{')) mark += ' ';
    mark += c;
  }
  return mark;
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

size_t CommonSuffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                             a.rbegin());
}

// The part of a prompt that holds calls: after the beginning of the answer and before its end.
// These are found by comparison with `plain`, a prompt with an answer without calls.
std::string_view CallRegion(std::string_view text, std::string_view prompt, std::string_view plain,
                            const std::optional<ReasoningMarkup>& reasoning) {
  const size_t content = std::min(plain.find(kText), plain.size());
  size_t begin = 0;
  for (const std::string_view header : {plain.substr(0, content), prompt}) {
    if (text.starts_with(header)) begin = std::max(begin, header.size());
  }
  if (begin == 0) {
    begin = CommonPrefix(text, prompt);
    while (begin > 0 && !ClosesTag(text[begin - 1]) && text[begin - 1] != '\n') --begin;
  }
  std::string_view region = text.substr(begin);
  std::string_view tail = plain.substr(std::min(content + kText.size(), plain.size()));
  tail.remove_prefix(tail.size() - CommonSuffix(tail, region));
  if (plain.size() != content + kText.size() + tail.size()) {
    // The two prompts end alike in part only, and that part must not begin within a mark.
    while (!tail.empty() && !OpensTag(tail[0])) tail.remove_prefix(1);
  }
  region.remove_suffix(tail.size());
  const size_t closed = reasoning ? region.rfind(reasoning->close) : kNone;
  if (closed != kNone) region.remove_prefix(closed + reasoning->close.size());
  return region;
}

// A call in a region, and the marks within it.
struct Core {
  size_t begin = 0;
  size_t end = 0;
  CallMarkup markup;
};

// The end of the JSON object at `begin`; kNone where there is none.
size_t ObjectEnd(std::string_view text, size_t begin) {
  JsonScanner scanner;
  for (size_t at = begin; at < text.size(); ++at) {
    const JsonScanner::Result result = scanner.Push(text[at]);
    if (result == JsonScanner::Result::kError) return kNone;
    if (result == JsonScanner::Result::kDone) return at + 1;
  }
  return kNone;
}

std::optional<Core> JsonCore(std::string_view text, size_t from, size_t name) {
  for (size_t begin = text.find('{', from); begin < name; begin = text.find('{', begin + 1)) {
    const size_t end = ObjectEnd(text, begin);
    if (end == kNone || end < name) continue;
    const nlohmann::json object = ParseJson(text.substr(begin, end - begin));
    if (!object.is_object() || (!object.contains("name") && !object.contains("tool_name")))
      continue;
    return Core{begin, end, {.form = Form::kJson}};
  }
  return std::nullopt;
}

// Drops a number at the front, as in ":0". A template may print a call's id, which is the name with
// a number behind it, in place of the name.
std::string_view WithoutNumber(std::string_view text) {
  if (text.size() < 2 || text[0] != ':') return text;
  size_t at = 1;
  while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at > 1 ? text.substr(at) : text;
}

std::optional<Core> NamedCore(std::string_view text, size_t name, size_t name_end) {
  const size_t begin = text.find('{', name_end);
  const size_t end = begin == kNone ? kNone : ObjectEnd(text, begin);
  if (end == kNone || text.find(kKeys[0], name_end) < begin) return std::nullopt;
  const std::string_view close = WithoutNumber(text.substr(name_end, begin - name_end));
  return Core{name, end, {.form = Form::kNamed, .name_close = Mark(close)}};
}

std::optional<Core> TaggedCore(std::string_view text, size_t name, size_t name_end) {
  size_t key[2];
  size_t value[2];
  size_t at = name_end;
  for (int i = 0; i < 2; ++i) {
    key[i] = text.find(kKeys[i], at);
    if (key[i] == kNone) return std::nullopt;
    value[i] = text.find(kValues[i], key[i]);
    if (value[i] == kNone || text[value[i] - 1] == '"') return std::nullopt;
    at = value[i] + kValues[i].size();
  }
  const std::string_view before = text.substr(name_end, key[0] - name_end);
  const size_t key_end = key[0] + kKeys[0].size();
  const size_t value_end = value[0] + kValues[0].size();
  const std::string_view between = text.substr(value_end, key[1] - value_end);
  const std::string_view key_close = text.substr(key_end, value[0] - key_end);
  if (!text.substr(key[1] + kKeys[1].size())
           .starts_with(std::string(key_close) + std::string(kValues[1]))) {
    return std::nullopt;
  }
  // Between two pairs of key and value is the end of one and the beginning of the other.
  for (size_t split = 1; split < between.size(); ++split) {
    if (!OpensTag(between[split])) continue;
    const std::string_view close = Trimmed(between.substr(0, split));
    const std::string_view open = Trimmed(between.substr(split));
    size_t end = at;
    if (close.empty() || MatchMark(text, end, close) != Match::kYes) continue;
    if (!Trimmed(before).ends_with(open)) continue;
    const std::string_view name_close = before.substr(0, before.rfind(open));
    return Core{name,
                end,
                {.form = Form::kTagged,
                 .name_close = Mark(WithoutNumber(name_close)),
                 .key_open = Mark(open),
                 .key_close = Mark(key_close),
                 .value_close = Mark(close)}};
  }
  return std::nullopt;
}

std::optional<Core> FindCore(std::string_view text, size_t from, std::string_view name) {
  const size_t at = text.find(name, from);
  if (at == kNone) return std::nullopt;
  std::optional<Core> core = JsonCore(text, from, at);
  if (!core) core = NamedCore(text, at, at + name.size());
  if (!core) core = TaggedCore(text, at, at + name.size());
  return core;
}

// Separates the marks of each call from those of the section around all calls: only the former
// stand between two calls.
void SplitMarks(std::string_view before, std::string_view between, std::string_view after,
                CallMarkup& markup) {
  size_t open = before.size() - CommonSuffix(before, between);
  while (open > 0 && open < before.size() && !OpensTag(before[open])) ++open;
  const size_t open_size = before.size() - open;
  size_t close = std::min(CommonPrefix(after, between), between.size() - open_size);
  if (close < after.size()) {
    const size_t tag = after.substr(0, close).find_last_of("<[");
    const bool is_cut = tag != kNone && after.substr(tag, close - tag).find_last_of(">]") == kNone;
    if (is_cut) close = tag;
  }
  markup.section_open = Mark(before.substr(0, open));
  markup.call_open = Mark(before.substr(open));
  markup.call_close = Mark(after.substr(0, close));
  markup.section_close = Mark(after.substr(close));
  markup.separator = Mark(between.substr(close, between.size() - open_size - close));
}

// Whether a reader with this markup reads back the calls that the template wrote.
bool Reads(const AnswerMarkup& markup, std::string_view text, int num_calls) {
  AnswerReader reader(std::make_shared<const AnswerMarkup>(markup),
                      {.calls = ReaderOptions::Calls::kWhole});
  std::vector<AnswerEvent> events = reader.Feed(Trimmed(text));
  for (AnswerEvent& event : reader.Finish()) events.push_back(std::move(event));
  if (events.size() != static_cast<size_t>(num_calls) * 3) return false;
  for (size_t i = 0; i < events.size(); i += 3) {
    if (events[i].kind != AnswerEvent::Kind::kCallBegin || events[i].name != kNames[i / 3])
      return false;
    if (events[i + 1].kind != AnswerEvent::Kind::kArguments) return false;
    if (ParseOrderedJson(events[i + 1].text).value != Arguments()) return false;
  }
  return true;
}

// Whether a text can be a mark: one of ordinary words would be found in ordinary texts.
bool IsMark(const std::string& mark) { return mark.find_first_of("<[{|`") != std::string::npos; }

std::optional<CallMarkup> CallsInStyle(const ChatTemplate& chat, const CallStyle& style,
                                       const std::optional<ReasoningMarkup>& reasoning) {
  const auto one = Rendered(chat, WithCalls(1, style), Tools::kGiven);
  const auto plain = Rendered(chat, Assistant(kText), Tools::kGiven);
  const auto prompt = Rendered(chat, nullptr, Tools::kGiven);
  if (!one || !plain || !prompt) return std::nullopt;
  const std::string_view region = CallRegion(*one, *prompt, *plain, reasoning);
  std::optional<Core> core = FindCore(region, 0, kNames[0]);
  if (!core) return std::nullopt;
  const std::string_view before = region.substr(0, core->begin);
  const std::string_view after = region.substr(core->end);
  AnswerMarkup markup{.reasoning = std::nullopt, .calls = core->markup};
  markup.calls->call_open = Mark(before);
  markup.calls->call_close = Mark(after);
  const auto both = Rendered(chat, WithCalls(2, style), Tools::kGiven);
  const std::string_view region_of_both =
      both ? CallRegion(*both, *prompt, *plain, reasoning) : std::string_view();
  const std::optional<Core> first = FindCore(region_of_both, 0, kNames[0]);
  const std::optional<Core> second =
      first ? FindCore(region_of_both, first->end, kNames[1]) : std::nullopt;
  if (second && second->begin >= first->end) {
    SplitMarks(before, region_of_both.substr(first->end, second->begin - first->end), after,
               *markup.calls);
  }
  CallMarkup& calls = *markup.calls;
  const std::string& entry = calls.section_open.empty() ? calls.call_open : calls.section_open;
  if (entry.empty() ? calls.form != Form::kJson : !IsMark(entry)) return std::nullopt;
  if (calls.form != Form::kJson && calls.call_open.empty()) return std::nullopt;
  if (entry.empty() && calls.separator.empty()) calls.separator = ";";
  for (const std::string& mark : markup.Marks()) {
    if (mark.find("probe") != std::string::npos)
      return std::nullopt;  // a mark must not change from call to call
  }
  if (!Reads(markup, region, 1) || (second && !Reads(markup, region_of_both, 2))) {
    return std::nullopt;
  }
  return calls;
}

bool IsThinking(std::string_view tag) {
  std::string small(tag);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small.find("think") != std::string::npos || small.find("reason") != std::string::npos;
}

std::optional<ReasoningMarkup> FindReasoning(const ChatTemplate& chat) {
  const ReasoningMarkup think{"<think>", "</think>"};
  Json message = Assistant(kText);
  message["reasoning_content"] = kThought;
  const std::string with_field = Rendered(chat, message, Tools::kAbsent).value_or("");
  const size_t thought = with_field.find(kThought);
  const size_t text = with_field.find(kText);
  if (thought != kNone && text != kNone && thought < text) {
    const std::string_view all = with_field;
    const std::string_view before = Trimmed(all.substr(0, thought));
    const std::string_view after =
        Trimmed(all.substr(thought + kThought.size(), text - thought - kThought.size()));
    const size_t open = before.find_last_of("<[");
    const size_t close = after.find_first_of(">]");
    if (open == kNone || close == kNone || !ClosesTag(before.back()) || !OpensTag(after[0])) {
      return std::nullopt;
    }
    const ReasoningMarkup found{std::string(before.substr(open)),
                                std::string(after.substr(0, close + 1))};
    if (IsThinking(found.open) && IsThinking(found.close)) return found;
    return std::nullopt;
  }
  // Templates without a field for reasoning may drop it from the content, or begin it in the
  // prompt.
  const std::string content =
      think.open + "\n" + std::string(kThought) + "\n" + think.close + "\n\n" + std::string(kText);
  const std::string dropped =
      Rendered(chat, Assistant(content), Tools::kAbsent, Ends::kGoesOn).value_or("");
  if (dropped.find(kText) != kNone && dropped.find(kThought) == kNone) return think;
  const std::string prompt = Rendered(chat, nullptr, Tools::kAbsent).value_or("");
  if (Trimmed(prompt).ends_with(think.open)) return think;
  return std::nullopt;
}

}  // namespace

AnswerMarkup MarkupOfTemplate(const ChatTemplate& chat) {
  AnswerMarkup markup;
  markup.reasoning = FindReasoning(chat);
  using Id = CallStyle::Id;
  for (const Id id : {Id::kLong, Id::kShort, Id::kNamed}) {
    for (const bool string_arguments : {false, true}) {
      markup.calls =
          CallsInStyle(chat, {.id = id, .string_arguments = string_arguments}, markup.reasoning);
      if (!markup.calls) continue;
      markup.short_call_ids = id == Id::kShort;
      return markup;
    }
  }
  return markup;
}

}  // namespace tandem
