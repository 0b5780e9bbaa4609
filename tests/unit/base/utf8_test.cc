#include "base/utf8.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace tandem::utf8_test {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string Replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(Utf8, TheEndsOfEachLengthAreValid) {
  for (const std::string_view text :
       {"\0"sv, "\x7F"sv, "\xC2\x80"sv, "\xDF\xBF"sv, "\xE0\xA0\x80"sv, "\xED\x9F\xBF"sv,
        "\xEE\x80\x80"sv, "\xEF\xBF\xBF"sv, "\xF0\x90\x80\x80"sv, "\xF4\x8F\xBF\xBF"sv}) {
    EXPECT_EQ(ValidUtf8Prefix(text), text.size());
    EXPECT_EQ(ReplaceInvalidUtf8(text), text);
    EXPECT_EQ(IncompleteUtf8Suffix(text), 0U);
  }
}

TEST(Utf8, ValidPrefixEndsBeforeTheFirstError) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0U);
  EXPECT_EQ(ValidUtf8Prefix("ab\xFFz"), 2U);
  EXPECT_EQ(ValidUtf8Prefix("\xC3\xA9\xC3"), 2U);
}

// The counts follow Unicode 15, tables 3-8 to 3-11: one U+FFFD per maximal ill-formed part.
TEST(Utf8, EachMaximalIllFormedPartIsReplacedOnce) {
  EXPECT_EQ(ReplaceInvalidUtf8("\x80"), Replacements(1));
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), Replacements(2));          // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xE0\x80\xAF"), Replacements(3));      // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), Replacements(3));      // surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x91\x92\x93"), Replacements(4));  // above U+10FFFF
  EXPECT_EQ(ReplaceInvalidUtf8("\xF5\x80\x80\x80"), Replacements(4));
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80"), Replacements(1));  // cut
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"
                               "a"),
            Replacements(1) + "a");  // cut
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                               "A"),
            Replacements(4) + "A");
}

TEST(Utf8, SuffixesThatCouldStillBecomeACharacter) {
  EXPECT_EQ(IncompleteUtf8Suffix(""), 0U);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xC3"), 1U);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xF0\x9F\x98"), 3U);
  EXPECT_EQ(IncompleteUtf8Suffix("\xE2\x82"), 2U);
  EXPECT_EQ(IncompleteUtf8Suffix("\xE0\x80"), 0U);      // overlong: nothing can complete it
  EXPECT_EQ(IncompleteUtf8Suffix("\xED\xA0"), 0U);      // surrogate
  EXPECT_EQ(IncompleteUtf8Suffix("\xC3\xA9\x80"), 0U);  // a lone trail byte
  EXPECT_EQ(IncompleteUtf8Suffix("\xFF"), 0U);
}

TEST(Utf8, HoldingBackTheSuffixNeverChangesTheText) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF0\x9F\xE2\x82\xFF\xED\xA0\x80z";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view first = std::string_view(text).substr(0, cut);
    const size_t certain = cut - IncompleteUtf8Suffix(first);
    EXPECT_EQ(
        ReplaceInvalidUtf8(text.substr(0, certain)) + ReplaceInvalidUtf8(text.substr(certain)),
        ReplaceInvalidUtf8(text))
        << "cut at " << cut;
  }
}

}  // namespace
}  // namespace tandem::utf8_test
