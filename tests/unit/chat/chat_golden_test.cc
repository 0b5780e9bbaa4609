// Prompts that jinja2 made of the templates in tests/golden/chat, in the environment of
// transformers (make_chat_golden.py).

#include "base/json.h"
#include "gtest/gtest.h"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"
#include "tests/unit/chat/rendered.h"

namespace tandem::chat_golden_test {
namespace {

TEST(ChatGoldenTest, PromptsAreThoseOfJinja2) {
  const std::string folder = TreePath("tests/golden/chat/");
  const ChatJson golden = ParseOrderedJson(ReadFile(folder + "prompts.json")).value;
  size_t texts = 0;
  for (const auto& [file, prompts] : golden["prompts"].items()) {
    const std::string source = ReadFile(folder + "templates/" + file);
    for (const auto& [name, prompt] : prompts.items()) {
      ChatJson variables = golden["special_tokens"];
      variables.update(golden["conversations"][name]);
      const auto text = RenderMarked(source, variables);
      ASSERT_EQ(text.ok(), prompt.is_string()) << file << ", " << name << ": " << text.status();
      if (!text.ok()) continue;
      EXPECT_EQ(text->bytes(), prompt.get<std::string>()) << file << ", " << name;
      ++texts;
    }
  }
  EXPECT_GT(texts, 200u);
}

}  // namespace
}  // namespace tandem::chat_golden_test
