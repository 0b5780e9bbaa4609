// Answers of foreign text: the first byte chooses how calls are marked, the second where the text
// is split, and whether reasoning has begun.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/answer/answer_reader.h"

namespace tandem {
namespace {

using Kind = AnswerEvent::Kind;

// The events with parts of a kind joined.
std::vector<AnswerEvent> Events(const std::shared_ptr<const AnswerMarkup>& markup,
                                const ReaderOptions& options, std::string_view text, size_t step) {
  AnswerReader reader(markup, options);
  std::vector<AnswerEvent> joined;
  const auto add = [&](std::vector<AnswerEvent> events) {
    for (AnswerEvent& event : events) {
      const bool goes_on = !joined.empty() && joined.back().kind == event.kind &&
                           (event.kind == Kind::kContent || event.kind == Kind::kReasoning ||
                            event.kind == Kind::kArguments);
      if (goes_on) {
        joined.back().text += event.text;
      } else {
        joined.push_back(std::move(event));
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += step) add(reader.Feed(text.substr(at, step)));
  add(reader.Finish());
  return joined;
}

// Each call begins, has arguments and ends, and the calls are counted.
void CheckCalls(const std::vector<AnswerEvent>& events, ReaderOptions::Calls calls) {
  int32_t count = 0;
  bool open = false;
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kCallBegin) {
      TANDEM_CHECK(!open && event.call == count && !event.name.empty(), "a wrong beginning");
      open = true;
    } else if (event.kind == Kind::kCallEnd) {
      TANDEM_CHECK(open && event.call == count++, "a wrong end");
      open = false;
    } else if (event.kind == Kind::kArguments) {
      TANDEM_CHECK(open && event.call == count, "arguments of another call");
      const bool whole = calls == ReaderOptions::Calls::kWhole;
      TANDEM_CHECK(!whole || event.text.starts_with('{') || event.text.empty(), "no object");
    } else {
      TANDEM_CHECK(!open && !event.text.empty(), "text within a call");
    }
  }
  TANDEM_CHECK(!open, "a call without an end");
}

void CheckAnswer(std::string_view text, const std::string& parser, size_t step, bool reasoning) {
  const auto markup = ChooseMarkup(nullptr, nullptr, {.tools = parser, .reasoning = "think"});
  const auto shared = std::make_shared<const AnswerMarkup>(*markup);
  for (const auto calls : {ReaderOptions::Calls::kStreamed, ReaderOptions::Calls::kWhole}) {
    const ReaderOptions options{.calls = calls, .reasoning_open = reasoning, .id_seed = "f"};
    const std::vector<AnswerEvent> whole = Events(shared, options, text, text.size() + 1);
    CheckCalls(whole, calls);
    TANDEM_CHECK(Events(shared, options, text, step) == whole, "depends on where it was split");
    // Without marks all of the text is content.
    const bool plain = !reasoning && whole.size() == 1 && whole[0].kind == Kind::kContent &&
                       text.find("<think>") == std::string_view::npos;
    TANDEM_CHECK(!plain || whole[0].text == text, "text was lost");
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const auto& parsers = *new std::vector<std::string>(tandem::ToolParserNames());
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  const size_t step = 1 + (data[1] & 31);
  tandem::CheckAnswer(text, parsers[data[0] % parsers.size()], step, (data[1] & 128) != 0);
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) tandem::MarkupOfResponseTemplate(json).IgnoreError();
  return 0;
}
