#include "router/request/choice_text.h"

#include "gtest/gtest.h"
#include "tests/support/letter_tokenizer.h"

namespace tandem {
namespace {

// "b" may be the beginning of the stop string "bc", so it is held back until the output ends.
TEST(ChoiceTextTest, TextHeldBackForAStopStringIsReturnedAtTheEnd) {
  LetterTokenizer tokenizer;
  ChoiceText text(&tokenizer, {"bc"}, {});
  EXPECT_EQ(text.Push('a'), "a");
  EXPECT_EQ(text.Push('b'), "");
  EXPECT_EQ(text.Flush(), "b");
}

TEST(ChoiceTextTest, NoTextOfAStopStringIsReturnedAtTheEnd) {
  LetterTokenizer tokenizer;
  ChoiceText text(&tokenizer, {"bc"}, {});
  EXPECT_EQ(text.Push('a'), "a");
  EXPECT_EQ(text.Push('b'), "");
  EXPECT_EQ(text.Push('c'), "");
  EXPECT_EQ(text.matched_stop(), "bc");
  EXPECT_EQ(text.Flush(), "");
}

}  // namespace
}  // namespace tandem
