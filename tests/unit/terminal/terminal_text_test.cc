// What a model says must not steer the terminal.

#include "server/terminal/terminal_text.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace tandem::terminal::terminal_text_test {
namespace {

TEST(TerminalTextTest, EscapeSequencesBecomeVisible) {
  EXPECT_EQ(Printable("\033]0;title\007"), "␛]0;title␇");
  EXPECT_EQ(Printable("\033[2J\033[1;1H"), "␛[2J␛[1;1H");
  EXPECT_EQ(Printable("a\bb\x7f"), "a␈b␡");
  EXPECT_EQ(Printable(std::string_view("\0x", 2)), "␀x");
}

TEST(TerminalTextTest, SingleCharactersThatBeginSequencesAreReplaced) {
  EXPECT_EQ(Printable("\u009b31mred"), "\ufffd31mred");
  EXPECT_EQ(Printable("\u0080\u009f\u00a0"), "\ufffd\ufffd\u00a0");
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            "\ufffd31m")
      << "a byte of C1 that is no UTF-8";
}

TEST(TerminalTextTest, LinesAndTabsStay) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(Printable("a\r\nb"), "a\nb");
  EXPECT_EQ(Printable("over\rwritten"), "over␍written");
  EXPECT_EQ(Printable("end\r"), "end␍");
}

TEST(TerminalTextTest, ACharacterThatIsCutComesWhole) {
  const std::string text = "né 東京 😀\033[0m \u009b é\r\n.";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      TerminalText filter;
      std::string printed = filter.Feed(std::string_view(text).substr(0, first));
      EXPECT_EQ(Printable(printed), printed) << "each part is whole by itself";
      printed += filter.Feed(std::string_view(text).substr(first, second - first));
      printed += filter.Feed(std::string_view(text).substr(second));
      EXPECT_EQ(printed + filter.Finish(), Printable(text)) << first << " " << second;
    }
  }
}

TEST(TerminalTextTest, ACharacterThatNeverEndsIsReplaced) {
  TerminalText filter;
  EXPECT_EQ(filter.Feed("a\xe6\x9d"), "a");
  EXPECT_EQ(filter.Finish(), "\ufffd");
  EXPECT_EQ(filter.Feed("b"), "b");
}

TEST(TerminalTextTest, NoByteStringLeavesAControl) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string bytes = {static_cast<char>(first), static_cast<char>(second), 'x'};
      const std::string printed = Printable(bytes);
      for (size_t i = 0; i < printed.size(); ++i) {
        const auto byte = static_cast<unsigned char>(printed[i]);
        const bool c0 = byte < 0x20 && byte != '\n' && byte != '\t';
        const bool c1 = byte == 0xc2 && static_cast<unsigned char>(printed[i + 1]) < 0xa0;
        ASSERT_FALSE(c0 || byte == 0x7f || c1) << first << " " << second;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::terminal::terminal_text_test
