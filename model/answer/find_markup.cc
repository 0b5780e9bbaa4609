// Finds the marks of a model by what its chat template writes for small conversations.
#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json.h"
#include "model/answer/answer_reader.h"
#include "model/answer/call_core.h"
#include "model/answer/mark.h"
#include "model/answer/probe.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Form = CallMarkup::Form;

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
  const size_t content = std::min(plain.find(probe::kText), plain.size());
  size_t begin = 0;
  for (const std::string_view header : {plain.substr(0, content), prompt}) {
    if (text.starts_with(header)) begin = std::max(begin, header.size());
  }
  if (begin == 0) {
    begin = CommonPrefix(text, prompt);
    while (begin > 0 && !ClosesTag(text[begin - 1]) && text[begin - 1] != '\n') --begin;
  }
  std::string_view region = text.substr(begin);
  std::string_view tail = plain.substr(std::min(content + probe::kText.size(), plain.size()));
  tail.remove_prefix(tail.size() - CommonSuffix(tail, region));
  if (plain.size() != content + probe::kText.size() + tail.size()) {
    // The two prompts end alike in part only, and that part must not begin within a mark.
    while (!tail.empty() && !OpensTag(tail[0])) tail.remove_prefix(1);
  }
  region.remove_suffix(tail.size());
  const size_t closed = reasoning ? region.rfind(reasoning->close) : kNoOffset;
  if (closed != kNoOffset) region.remove_prefix(closed + reasoning->close.size());
  return region;
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
    const bool is_cut =
        tag != kNoOffset && after.substr(tag, close - tag).find_last_of(">]") == kNoOffset;
    if (is_cut) close = tag;
  }
  markup.section_open = MarkOf(before.substr(0, open));
  markup.call_open = MarkOf(before.substr(open));
  markup.call_close = MarkOf(after.substr(0, close));
  markup.section_close = MarkOf(after.substr(close));
  markup.separator = MarkOf(between.substr(close, between.size() - open_size - close));
}

// Whether a reader with this markup reads back the calls that the template wrote.
bool Reads(const AnswerMarkup& markup, std::string_view text, int num_calls) {
  AnswerReader reader(std::make_shared<const AnswerMarkup>(markup),
                      {.calls = ReaderOptions::Calls::kWhole});
  std::vector<AnswerEvent> events = reader.Feed(Trimmed(text));
  for (AnswerEvent& event : reader.Finish()) events.push_back(std::move(event));
  if (events.size() != static_cast<size_t>(num_calls) * 3) return false;
  for (size_t i = 0; i < events.size(); i += 3) {
    if (events[i].kind != AnswerEvent::Kind::kCallBegin || events[i].name != probe::kNames[i / 3])
      return false;
    if (events[i + 1].kind != AnswerEvent::Kind::kArguments) return false;
    if (ParseOrderedJson(events[i + 1].text).value != probe::Arguments()) return false;
  }
  return true;
}

// Whether a text can be a mark: one of ordinary words would be found in ordinary texts.
bool IsMark(const std::string& mark) { return mark.find_first_of("<[{|`") != std::string::npos; }

std::optional<CallMarkup> CallsInStyle(const ChatTemplate& chat, const probe::CallStyle& style,
                                       const std::optional<ReasoningMarkup>& reasoning) {
  const auto one = probe::Rendered(chat, probe::WithCalls(1, style), probe::Tools::kGiven);
  const auto plain = probe::Rendered(chat, probe::Assistant(probe::kText), probe::Tools::kGiven);
  const auto prompt = probe::Rendered(chat, nullptr, probe::Tools::kGiven);
  if (!one || !plain || !prompt) return std::nullopt;
  const std::string_view region = CallRegion(*one, *prompt, *plain, reasoning);
  std::optional<CallCore> core = FindCallCore(region, 0, probe::kNames[0]);
  if (!core) return std::nullopt;
  const std::string_view before = region.substr(0, core->begin);
  const std::string_view after = region.substr(core->end);
  AnswerMarkup markup{.reasoning = std::nullopt, .calls = core->markup};
  markup.calls->call_open = MarkOf(before);
  markup.calls->call_close = MarkOf(after);
  const auto both = probe::Rendered(chat, probe::WithCalls(2, style), probe::Tools::kGiven);
  const std::string_view region_of_both =
      both ? CallRegion(*both, *prompt, *plain, reasoning) : std::string_view();
  const std::optional<CallCore> first = FindCallCore(region_of_both, 0, probe::kNames[0]);
  const std::optional<CallCore> second =
      first ? FindCallCore(region_of_both, first->end, probe::kNames[1]) : std::nullopt;
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
  Json message = probe::Assistant(probe::kText);
  message["reasoning_content"] = probe::kThought;
  const std::string with_field = probe::Rendered(chat, message, probe::Tools::kAbsent).value_or("");
  const size_t thought = with_field.find(probe::kThought);
  const size_t text = with_field.find(probe::kText);
  if (thought != kNoOffset && text != kNoOffset && thought < text) {
    const std::string_view all = with_field;
    const std::string_view before = Trimmed(all.substr(0, thought));
    const std::string_view after = Trimmed(
        all.substr(thought + probe::kThought.size(), text - thought - probe::kThought.size()));
    const size_t open = before.find_last_of("<[");
    const size_t close = after.find_first_of(">]");
    if (open == kNoOffset || close == kNoOffset || !ClosesTag(before.back()) ||
        !OpensTag(after[0])) {
      return std::nullopt;
    }
    const ReasoningMarkup found{std::string(before.substr(open)),
                                std::string(after.substr(0, close + 1))};
    if (IsThinking(found.open) && IsThinking(found.close)) return found;
    return std::nullopt;
  }
  // Templates without a field for reasoning may drop it from the content, or begin it in the
  // prompt.
  const std::string content = think.open + "\n" + std::string(probe::kThought) + "\n" +
                              think.close + "\n\n" + std::string(probe::kText);
  const std::string dropped =
      probe::Rendered(chat, probe::Assistant(content), probe::Tools::kAbsent, probe::Ends::kGoesOn)
          .value_or("");
  if (dropped.find(probe::kText) != kNoOffset && dropped.find(probe::kThought) == kNoOffset)
    return think;
  const std::string prompt = probe::Rendered(chat, nullptr, probe::Tools::kAbsent).value_or("");
  if (Trimmed(prompt).ends_with(think.open)) return think;
  return std::nullopt;
}

}  // namespace

AnswerMarkup MarkupOfTemplate(const ChatTemplate& chat) {
  AnswerMarkup markup;
  markup.reasoning = FindReasoning(chat);
  using Id = probe::CallStyle::Id;
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
