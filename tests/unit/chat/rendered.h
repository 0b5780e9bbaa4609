#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "model/chat/chat_values.h"
#include "model/chat/jinja/evaluator.h"
#include "model/chat/jinja/syntax.h"

namespace tandem {

// 2026-01-02 03:04:05 UTC, a Friday.
inline constexpr std::chrono::system_clock::time_point kTestNow{std::chrono::seconds(1767323045)};

// The text that `source` makes of `variables`, all of which come from the input.
inline absl::StatusOr<jinja::Text> RenderMarked(std::string_view source,
                                                const ChatJson& variables = ChatJson::object(),
                                                int64_t steps = 1'000'000) {
  auto program = jinja::Parse(source);
  if (!program.ok()) return program.status();
  ChatValues values;
  jinja::Variables converted;
  for (auto at = variables.begin(); at != variables.end(); ++at) {
    auto value = values.Convert(at.value());
    if (!value.ok()) return value.status();
    converted.emplace_back(at.key(), *std::move(value));
  }
  jinja::Machine machine(steps, kTestNow);
  return jinja::Render(**program, converted, machine);
}

// The text, or the error.
inline std::string Rendered(std::string_view source,
                            const ChatJson& variables = ChatJson::object()) {
  const auto text = RenderMarked(source, variables);
  return text.ok() ? text->bytes() : "error: " + std::string(text.status().message());
}

// The text with what came from the input in guillemets.
inline std::string Marked(std::string_view source, const ChatJson& variables) {
  const auto text = RenderMarked(source, variables);
  if (!text.ok()) return "error: " + std::string(text.status().message());
  std::string marked;
  size_t at = 0;
  for (const auto& range : text->input()) {
    marked += text->bytes().substr(at, range.begin - at);
    marked += "«" + text->bytes().substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return marked + text->bytes().substr(at);
}

}  // namespace tandem
