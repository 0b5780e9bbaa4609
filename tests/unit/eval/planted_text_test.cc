#include "server/eval/planted_text.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::planted_text_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kPromptTokens = 800;

// A token per byte.
absl::StatusOr<std::vector<int32_t>> Bytes(std::string_view text, Template) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string TextOf(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

// Prompts of one letter, another one in each window.
std::vector<EvalWindow> Windows(int count) {
  std::vector<EvalWindow> windows;
  for (int i = 0; i < count; ++i) {
    windows.push_back({.name = fmt::format("book#{}", i + 1), .prompt = {'^'}, .output = {'x'}});
    windows.back().prompt.resize(kPromptTokens, 'a' + i);
  }
  return windows;
}

TEST(PlantedFactTest, HasACodeOfFiveDigitsOfItsOwn) {
  std::set<std::string> codes;
  for (int64_t window = 0; window < 90'000; ++window) {
    const PlantedFact fact = PlantedFactOf(window);
    ASSERT_EQ(fact.answer.size(), 6u) << window;
    ASSERT_TRUE(codes.insert(fact.answer).second) << window;
    ASSERT_NE(fact.answer[1], '0') << window;
  }
  EXPECT_TRUE(std::ranges::all_of(codes, [](const std::string& code) {
    return code[0] == ' ' && std::ranges::all_of(code.substr(1), [](unsigned char c) {
             return std::isdigit(c) != 0;
           });
  }));
}

TEST(PlantedFactTest, SaysWhatIsAskedFor) {
  const PlantedFact fact = PlantedFactOf(0);
  EXPECT_EQ(fact.sentence, " The secret code of Lisbon is 58271.");
  EXPECT_EQ(fact.question, "\n\nWhat is the secret code of Lisbon? The secret code of Lisbon is");
  EXPECT_EQ(fact.answer, " 58271");
  EXPECT_THAT(PlantedFactOf(1).sentence, HasSubstr("Oslo"));
}

TEST(PlantedPlaceTest, GoesFromATenthTo85PercentInEvenSteps) {
  std::vector<int64_t> places;
  for (int64_t window = 0; window < 4; ++window) places.push_back(PlantedPlace(window, 4, 1000));
  EXPECT_EQ(places, (std::vector<int64_t>{100, 350, 600, 850}));
  EXPECT_EQ(PlantedPlace(0, 1, 1000), 100);
}

TEST(PlantFactsTest, AKnownQuestionEndsThePromptAndTheAnswerIsTheOutput) {
  const auto windows = PlantFacts(Windows(2), PlantedQuestion::kKnown, Bytes);
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->size(), 2u);
  for (const int64_t i : {0, 1}) {
    SCOPED_TRACE(i);
    const EvalWindow& window = (*windows)[static_cast<size_t>(i)];
    const PlantedFact fact = PlantedFactOf(i);
    const std::string prompt = TextOf(window.prompt);
    EXPECT_EQ(std::ssize(window.prompt), kPromptTokens);
    EXPECT_THAT(prompt, StartsWith("^"));
    EXPECT_THAT(prompt, EndsWith(fact.question));
    EXPECT_EQ(prompt.find(fact.sentence), static_cast<size_t>(i == 0 ? 80 : 680));
    EXPECT_EQ(TextOf(window.output), fact.answer);
    EXPECT_EQ(window.answer_tokens, 6);
  }
}

TEST(PlantFactsTest, ALaterQuestionIsInTheOutputAlone) {
  const auto windows = PlantFacts(Windows(2), PlantedQuestion::kLater, Bytes);
  ASSERT_TRUE(windows.ok()) << windows.status();
  const PlantedFact fact = PlantedFactOf(1);
  const std::string prompt = TextOf((*windows)[1].prompt);
  EXPECT_EQ(std::ssize((*windows)[1].prompt), kPromptTokens);
  EXPECT_EQ(prompt.find(fact.sentence), 680u);
  EXPECT_EQ(prompt.find(fact.question), std::string::npos);
  EXPECT_THAT(prompt, EndsWith("bbb"));
  EXPECT_EQ(TextOf((*windows)[1].output), fact.question + fact.answer);
  EXPECT_EQ((*windows)[1].answer_tokens, 6) << "the question is no part of the answer";
}

// Some vocabularies join the end of the question to the beginning of the answer.
TEST(PlantFactsTest, QuestionAndAnswerHaveTheTokensOfOneText) {
  const auto joined = [](std::string_view text, Template) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool pair = text.substr(i, 2) == "s " && i + 7 == text.size();
      ids.push_back(pair ? 1000 : static_cast<unsigned char>(text[i]));
      if (pair) ++i;
    }
    return absl::StatusOr<std::vector<int32_t>>(std::move(ids));
  };
  const auto windows = PlantFacts(Windows(1), PlantedQuestion::kKnown, joined);
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_EQ((*windows)[0].output, (std::vector<int32_t>{1000, '5', '8', '2', '7', '1'}));
  EXPECT_THAT(TextOf((*windows)[0].prompt), EndsWith("Lisbon i"));
}

TEST(PlantFactsTest, APromptWithoutRoomIsRefusedWithWhatToDo) {
  std::vector<EvalWindow> small = Windows(2);
  for (EvalWindow& window : small) window.prompt.resize(250);
  const auto later = PlantFacts(small, PlantedQuestion::kLater, Bytes);
  EXPECT_TRUE(later.ok()) << "without the question there is room: " << later.status();
  const auto known = PlantFacts(small, PlantedQuestion::kKnown, Bytes);
  EXPECT_EQ(known.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(known.status().message()), HasSubstr("book#2"));
  EXPECT_THAT(std::string(known.status().message()), HasSubstr("more to --prompt-tokens"));
}

TEST(PlantFactsTest, AnErrorOfTheTokenizerIsTheResult) {
  const auto failed =
      PlantFacts(Windows(1), PlantedQuestion::kKnown, [](std::string_view, Template) {
        return absl::StatusOr<std::vector<int32_t>>(Unavailable("no router"));
      });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::planted_text_test
