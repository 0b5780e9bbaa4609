#include "server/eval/eval_windows.h"

#include <string>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::eval_windows_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr int32_t kBos = 1000;

// A token per byte, behind a BOS.
class EvalWindowsTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<EvalWindow>> Windows(const std::vector<EvalText>& texts,
                                                  const WindowPlan& plan) {
    return MakeWindows(texts, plan, [this](std::string_view text, Template add) {
      pieces_.push_back(text.size());
      read_ += text;
      std::vector<int32_t> ids;
      if (add == Template::kAdd) ids.push_back(kBos);
      for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
      return absl::StatusOr<std::vector<int32_t>>(std::move(ids));
    });
  }
  static std::string TextOf(const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : ids) text += id == kBos ? '^' : static_cast<char>(id);
    return text;
  }

  std::vector<size_t> pieces_;
  std::string read_;
};

TEST_F(EvalWindowsTest, AreThePartsOfATextBehindWhatTheTokenizerPutsFirst) {
  const auto windows =
      Windows({{"book", "abcdefghijklmnop"}}, {.prompt_tokens = 4, .output_tokens = 2, .count = 9});
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->size(), 3u);
  EXPECT_EQ((*windows)[0].name, "book#1");
  EXPECT_EQ(TextOf((*windows)[0].prompt), "^abc");
  EXPECT_EQ(TextOf((*windows)[0].output), "de");
  EXPECT_EQ((*windows)[2].name, "book#3");
  EXPECT_EQ(TextOf((*windows)[2].prompt), "^klm");
  EXPECT_EQ(TextOf((*windows)[2].output), "no");
}

TEST_F(EvalWindowsTest, EveryTextComesBeforeAnyComesAgain) {
  const WindowPlan plan = {.prompt_tokens = 2, .output_tokens = 1, .count = 4};
  const auto windows = Windows({{"a", "123456"}, {"short", "1"}, {"b", "abcdef"}}, plan);
  ASSERT_TRUE(windows.ok()) << windows.status();
  std::vector<std::string> names;
  for (const EvalWindow& window : *windows) names.push_back(window.name);
  EXPECT_THAT(names, ElementsAre("a#1", "b#1", "a#2", "b#2"));
}

TEST_F(EvalWindowsTest, WithoutOutputsTheyAreThePromptsOneBehindTheOther) {
  const auto windows =
      Windows({{"book", "abcdefgh"}}, {.prompt_tokens = 4, .output_tokens = 0, .count = 9});
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->size(), 2u);
  EXPECT_EQ(TextOf((*windows)[1].prompt), "^def");
  EXPECT_TRUE((*windows)[1].output.empty());
}

TEST_F(EvalWindowsTest, LongTextsAreTokenizedInPiecesAndNoFurtherThanNeeded) {
  std::string text;
  while (text.size() < 100'000) text += "some words ";
  const auto windows =
      Windows({{"long", text}}, {.prompt_tokens = 20'001, .output_tokens = 10'000, .count = 1});
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_THAT(pieces_, Each(Le(16u << 10)));
  EXPECT_LT(read_.size(), 50'000u);
  EXPECT_EQ(TextOf((*windows)[0].prompt) + TextOf((*windows)[0].output),
            "^" + text.substr(0, 30'000));
}

TEST_F(EvalWindowsTest, ATextWithoutSpacesIsCutBetweenCharacters) {
  std::string text;
  while (text.size() < 40'000) text += "\xe2\x82\xac";
  const auto windows =
      Windows({{"long", text}}, {.prompt_tokens = 30'000, .output_tokens = 1, .count = 1});
  ASSERT_TRUE(windows.ok()) << windows.status();
  for (size_t i = 2; i < pieces_.size(); ++i) EXPECT_EQ(pieces_[i] % 3, 0u) << i;
}

TEST_F(EvalWindowsTest, TextsThatAreTooShortAreRefusedWithWhatToDo) {
  const auto none = Windows({{"a", "12345"}}, {.prompt_tokens = 5, .output_tokens = 2, .count = 1});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("none of 1 texts has the 7 tokens"));
  EXPECT_FALSE(Windows({}, {}).ok());
  const auto bos = Windows({{"a", "12345"}}, {.prompt_tokens = 1, .output_tokens = 2, .count = 1});
  EXPECT_THAT(std::string(bos.status().message()), HasSubstr("has no room for text"));
}

TEST_F(EvalWindowsTest, AnErrorOfTheTokenizerIsTheResult) {
  const auto failed = MakeWindows({{"a", "1"}}, {}, [](std::string_view, Template) {
    return absl::StatusOr<std::vector<int32_t>>(Unavailable("no router"));
  });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::eval_windows_test
