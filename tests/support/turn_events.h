#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "server/openai/turn.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// What a router sends for a request with one choice.
inline v1::GenerateResponse TextEvent(const std::string& text) {
  v1::GenerateResponse event;
  event.mutable_chunk()->set_text(text);
  event.mutable_chunk()->add_token_ids(1);
  return event;
}

inline v1::GenerateResponse FinishEvent(v1::FinishReason reason, const std::string& stop = "") {
  v1::GenerateResponse event;
  event.mutable_finish()->set_reason(reason);
  event.mutable_finish()->set_stop(stop);
  event.mutable_finish()->set_route(v1::ROUTE_UNIFIED);
  return event;
}

inline v1::GenerateResponse UsageEvent(int32_t prompt, int32_t completion, int32_t cached) {
  v1::GenerateResponse event;
  v1::Usage& usage = *event.mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(prompt);
  usage.set_completion_tokens(completion);
  usage.set_cached_tokens(cached);
  return event;
}

// An answer that thinks, speaks and calls f, in small parts.
inline std::vector<v1::GenerateResponse> ThoughtWordAndCall() {
  const std::string text =
      "<think>\nhm, so\n</think>\n\nLook:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
      "1}}\n</tool_call>";
  std::vector<v1::GenerateResponse> events;
  for (size_t at = 0; at < text.size(); at += 3) events.push_back(TextEvent(text.substr(at, 3)));
  return events;
}

// Finds those.
inline openai::TurnReading ReadThoughtsAndCalls(openai::TurnDelivery delivery) {
  using Calls = ReaderOptions::Calls;
  const bool streams = delivery == openai::TurnDelivery::kStreamed;
  AnswerMarkup markup;
  markup.reasoning = {.open = "<think>", .close = "</think>"};
  markup.calls.emplace();
  markup.calls->call_open = "<tool_call>";
  markup.calls->call_close = "</tool_call>";
  ReaderOptions options;
  options.calls = streams ? Calls::kStreamed : Calls::kWhole;
  options.id_seed = "r1";
  return {.reading = std::make_shared<const openai::ChoiceReading>(openai::ChoiceReading{
              .markup = std::make_shared<const AnswerMarkup>(markup), .options = options})};
}

}  // namespace tandem
