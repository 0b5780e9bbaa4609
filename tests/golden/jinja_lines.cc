// Renders Jinja for the scripts of this folder, which compare it with jinja2. Each line of the input
// is {"template": "...", "variables": {...}, "now": seconds}, and each of the output {"text": "...", "steps":
// n} or {"error": "..."}.
#include <chrono>
#include <iostream>
#include <string>

#include "model/chat/chat_values.h"
#include "model/chat/jinja/evaluator.h"
#include "model/chat/jinja/syntax.h"

namespace tandem {
namespace {

absl::StatusOr<ChatJson> RenderLine(const ChatJson& line) {
  auto program = jinja::Parse(line["template"].get_ref<const std::string&>());
  if (!program.ok()) return program.status();
  ChatValues values;
  jinja::Variables variables;
  for (auto at = line["variables"].begin(); at != line["variables"].end(); ++at) {
    absl::StatusOr<jinja::Value> value = values.Convert(at.value());
    if (!value.ok()) return value.status();
    variables.emplace_back(at.key(), *std::move(value));
  }
  const std::chrono::system_clock::time_point now{
      std::chrono::seconds(line.value("now", int64_t{0}))};
  jinja::Machine machine(10'000'000, now);
  absl::StatusOr<jinja::Text> text = jinja::Render(**program, variables, machine);
  if (!text.ok()) return text.status();
  return ChatJson({{"text", text->bytes()}, {"steps", machine.steps()}});
}

}  // namespace
}  // namespace tandem

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const tandem::ChatJson json = tandem::ChatJson::parse(line, nullptr, false);
    tandem::ChatJson answer;
    if (!json.is_object() || !json.contains("template") || !json.contains("variables")) {
      answer["error"] = "expected an object with a template and variables";
    } else if (const auto rendered = tandem::RenderLine(json); rendered.ok()) {
      answer = *rendered;
    } else {
      answer["error"] = std::string(rendered.status().message());
    }
    std::cout << answer.dump(-1, ' ', false, tandem::ChatJson::error_handler_t::replace) << "\n"
              << std::flush;
  }
  return 0;
}
