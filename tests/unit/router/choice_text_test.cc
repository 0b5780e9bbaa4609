#include "router/request/choice_text.h"

#include "gtest/gtest.h"
#include "tests/support/letter_tokenizer.h"

namespace tandem::choice_text_test {
namespace {

std::string PushAll(ChoiceText& text, std::string_view letters) {
  std::string all;
  for (const char letter : letters) all += text.Push(letter);
  return all;
}

// "b" may be the beginning of the stop string "bc", so it is held back until the output ends.
TEST(ChoiceTextTest, TextHeldBackForAStopStringIsReturnedAtTheEnd) {
  LetterTokenizer tokenizer;
  ChoiceText text(&tokenizer, {.stop_strings = {"bc"}});
  EXPECT_EQ(text.Push('a'), "a");
  EXPECT_EQ(text.Push('b'), "");
  EXPECT_EQ(text.Flush(), "b");
}

TEST(ChoiceTextTest, NoTextOfAStopStringIsReturnedAtTheEnd) {
  LetterTokenizer tokenizer;
  ChoiceText text(&tokenizer, {.stop_strings = {"bc"}});
  EXPECT_EQ(text.Push('a'), "a");
  EXPECT_EQ(text.Push('b'), "");
  EXPECT_EQ(text.Push('c'), "");
  EXPECT_EQ(text.matched_stop(), "bc");
  EXPECT_EQ(text.Flush(), "");
}

TEST(ChoiceTextTest, TheTextEndsWithTheStopStringWhereItIsIncluded) {
  LetterTokenizer tokenizer;
  ChoiceText text(&tokenizer, {.stop_strings = {"bc"}, .stop_text = RequestSpec::Text::kIncluded});
  EXPECT_EQ(PushAll(text, "abc"), "abc");
  EXPECT_TRUE(text.ended());
  EXPECT_EQ(text.Flush(), "");
}

TEST(ChoiceTextTest, TheTextEndsWithTheStopTokenWhereItIsIncluded) {
  LetterTokenizer tokenizer;
  for (const auto stop_text : {RequestSpec::Text::kLeftOut, RequestSpec::Text::kIncluded}) {
    ChoiceText text(&tokenizer, {.stop_token_ids = {'z'}, .stop_text = stop_text});
    EXPECT_EQ(PushAll(text, "az"), stop_text == RequestSpec::Text::kIncluded ? "az" : "a");
    EXPECT_TRUE(text.ended());
  }
}

// The first "ab" is complete with the second token, the next one with the third, "ba" with the
// third.
TEST(ChoiceTextTest, NoStopStringEndsTheTextBeforeMinTokens) {
  LetterTokenizer tokenizer;
  ChoiceText early(&tokenizer, {.stop_strings = {"ab"}, .min_tokens = 2});
  EXPECT_EQ(PushAll(early, "ab"), "ab");
  EXPECT_FALSE(early.ended());
  EXPECT_EQ(PushAll(early, "ab"), "");
  EXPECT_EQ(early.matched_stop(), "ab");

  ChoiceText across(&tokenizer, {.stop_strings = {"ba"}, .min_tokens = 2});
  EXPECT_EQ(PushAll(across, "aba"), "a");
  EXPECT_EQ(across.matched_stop(), "ba");
}

TEST(ChoiceTextTest, TextOfTheFirstTokensThatIsHeldBackIsReturnedAtTheEnd) {
  LetterTokenizer tokenizer;
  ChoiceText text(&tokenizer, {.stop_strings = {"bc"}, .min_tokens = 5});
  EXPECT_EQ(PushAll(text, "bcb"), "bc");
  EXPECT_EQ(text.Flush(), "b");
  EXPECT_FALSE(text.ended());
}

}  // namespace
}  // namespace tandem::choice_text_test
