#include "model/tokenizer/regex.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/regex_syntax.h"

namespace tandem::regex_test {
namespace {

using Matches = std::vector<std::string>;

Matches MatchesOf(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  if (!regex.ok()) return {};
  std::vector<MatchPart> parts;
  const absl::Status status = (*regex)->FindAll(text, parts);
  EXPECT_TRUE(status.ok()) << status;
  Matches matches;
  size_t covered = 0;
  for (const MatchPart& part : parts) {
    EXPECT_EQ(part.begin, covered) << "the parts leave a gap";
    covered = part.end;
    if (part.matched) matches.emplace_back(text.substr(part.begin, part.end - part.begin));
  }
  EXPECT_EQ(covered, text.size());
  return matches;
}

TEST(Regex, WhiteSpaceIsThatOfUnicode) {
  const std::string spaces =
      "\t\n\v\f\r \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000";
  EXPECT_EQ(MatchesOf(R"(\s+)", spaces), Matches{spaces});
  EXPECT_EQ(MatchesOf(R"([\s]+)", spaces), Matches{spaces});
  EXPECT_EQ(MatchesOf(R"(\S)", spaces), Matches{});
  EXPECT_EQ(MatchesOf(R"([\S]+)", "\u180E\u200B"), Matches{"\u180E\u200B"});
  EXPECT_EQ(MatchesOf(R"(\s)", "\u180E\u200B"), Matches{});
}

TEST(Regex, ClassesAreThoseOfUnicode) {
  EXPECT_EQ(MatchesOf(R"(\p{L}+)", "aé日1"), Matches{"aé日"});
  EXPECT_EQ(MatchesOf(R"(\p{^L}+)", "a12b"), Matches{"12"});
  EXPECT_EQ(MatchesOf(R"(\d+)", "1٣½"), Matches{"1٣"});
  EXPECT_EQ(MatchesOf(R"(\w+)", "a_é½-\u0301"), (Matches{"a_é½", "\u0301"}));
}

TEST(Regex, CaseIsFoldedInItsGroupOnly) {
  EXPECT_EQ(MatchesOf("(?i:'s)|x", "'s'S'ſX"), (Matches{"'s", "'S", "'ſ"}));
}

TEST(Regex, RewritesWhatPcreReadsDifferently) {
  EXPECT_EQ(*OnigurumaToPcre2(R"(a{,2}\u0041\v{x})"), R"(a{0,2}\x{0041}\x{0b}\{x})");
}

TEST(Regex, EmptyMatchesGoForward) { EXPECT_EQ(MatchesOf("a*", "aabé"), (Matches{"aa", "", ""})); }

// Expected matches are those of HuggingFace tokenizers 0.23.3.
TEST(Regex, WhiteSpaceAtTheEndOfALine) {
  const char* pattern = R"(\s+$)";
  EXPECT_EQ(MatchesOf(pattern, "a  \n b \t\nc  "), (Matches{"  ", " \t", "  "}));
  EXPECT_EQ(MatchesOf(pattern, " \n\n x\n"), (Matches{" \n", "\n"}));
  EXPECT_EQ(MatchesOf(pattern, "a\n\n\nb  \n"), (Matches{"\n\n", "  \n"}));
  EXPECT_EQ(MatchesOf(pattern, " \n  x"), (Matches{" "}));
  EXPECT_EQ(MatchesOf(pattern, "x"), Matches{});
  EXPECT_EQ(MatchesOf(pattern, std::string(1'000'000, ' ') + "x"), Matches{}) << "in linear time";
}

TEST(Regex, RefusesWhatItCannotMatchAlike) {
  for (const char* pattern :
       {"^a",          "a$",     R"(\ba)", R"(\Aa)",  R"((a)\1)", "[a&&b]",          "[[a]]",
        "[[:alpha:]]", "a(?i)b", "(?#x)",  "(*FAIL)", "a{2}+",    "a{2}?",           R"(\pL)",
        R"(\xE9)",     "[]a]",   R"(\)",   "(a",      "(?i:ss)",  R"(\p{Nonsense})", R"(\Qa\E)"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kUnimplemented) << pattern;
  }
}

TEST(Regex, GivesUpOnAnExplosion) {
  const auto regex = Regex::Compile("(?:a|a)*c");
  ASSERT_TRUE(regex.ok());
  std::vector<MatchPart> parts;
  EXPECT_EQ((*regex)->FindAll(std::string(300, 'a') + "bc", parts).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Regex, LongRunsAreNoExplosion) {
  const std::string spaces(1'000'000, ' ');
  EXPECT_EQ(MatchesOf(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces), Matches{spaces});
  const std::string letters(1'000'000, 'x');
  EXPECT_EQ(MatchesOf(R"([^\r\n\p{L}\p{N}]?\p{L}+|(?:ab)+)", letters), Matches{letters});
  std::string pairs;
  for (int i = 0; i < 200'000; ++i) pairs += "ab";
  EXPECT_EQ(MatchesOf("(?:ab)+", pairs), Matches{pairs});
}

}  // namespace
}  // namespace tandem::regex_test
