// Prints the markup that is found for each chat template named as an argument, one line of JSON each.
#include <fstream>
#include <iterator>

#include "fmt/format.h"
#include "model/answer/answer_markup.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto chat = tandem::ParseChatTemplate(
        {{{"default", text}}, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
    nlohmann::ordered_json line;
    line["template"] = std::string(argv[i]).substr(std::string(argv[i]).rfind('/') + 1);
    if (!chat.ok()) {
      line["error"] = std::string(chat.status().message());
    } else {
      const tandem::AnswerMarkup markup = tandem::MarkupOfTemplate(**chat);
      line["reasoning"] = markup.reasoning.has_value();
      line["calls"] = markup.calls.has_value();
      line["marks"] = markup.Marks();
    }
    fmt::print("{}\n", line.dump());
  }
}
