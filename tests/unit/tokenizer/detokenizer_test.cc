#include "model/tokenizer/detokenizer.h"

#include <random>

#include "base/json.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/tokenizer/small_tokenizer.h"

namespace tandem::detokenizer_test {
namespace {

using testing::ElementsAre;

// What each id lets out, and at last Flush.
std::vector<std::string> Pieces(const Json& json, const std::vector<int32_t>& ids) {
  const auto tokenizer = Parse(json);
  Detokenizer detokenizer(*tokenizer);
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(detokenizer.Push(id));
  pieces.push_back(detokenizer.Flush());
  return pieces;
}

Json Bytes() {
  // The bytes of U+1F600, and a letter; 5 is special.
  Json json = SmallTokenizer({"ð", "Ł", "ĺ", "Ģ", "a"});
  json["decoder"] = {{"type", "ByteLevel"}};
  json["added_tokens"].push_back({{"id", 5}, {"content", "<s>"}, {"special", true}});
  return json;
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  EXPECT_THAT(Pieces(Bytes(), {4, 0, 1, 2, 3, 4}),
              ElementsAre("a", "", "", "", "\U0001F600", "a", ""));
}

TEST(Detokenizer, SpecialTokensDoNotInterrupt) {
  EXPECT_THAT(Pieces(Bytes(), {5, 0, 1, 5, 2, 3}),
              ElementsAre("", "", "", "", "", "\U0001F600", ""));
}

TEST(Detokenizer, BrokenCharactersBecomeReplacementCharacters) {
  EXPECT_THAT(Pieces(Bytes(), {0, 1, 4}), ElementsAre("", "", "\uFFFDa", ""));
  EXPECT_THAT(Pieces(Bytes(), {3, 4, 0, 1}), ElementsAre("\uFFFD", "a", "", "", "\uFFFD"));
}

TEST(Detokenizer, IdsWithoutATokenAddNothing) {
  EXPECT_THAT(Pieces(Bytes(), {4, 1000, -1, 4}), ElementsAre("a", "", "", "a", ""));
}

Json Fallback() {
  Json json = SmallTokenizer({"▁a", "b▁", "<0xC3>", "<0xA9>", "▁"});
  json["decoder"] = ParseJson(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  return json;
}

TEST(Detokenizer, StripsTheFirstSpaceOnly) {
  EXPECT_THAT(Pieces(Fallback(), {0, 0, 1}), ElementsAre("a", " a", "b ", ""));
  EXPECT_THAT(Pieces(Fallback(), {4, 0}), ElementsAre("", " a", ""));
}

TEST(Detokenizer, ARunOfBytesIsCertainAtItsEnd) {
  EXPECT_THAT(Pieces(Fallback(), {2, 3, 0}), ElementsAre("", "", "é a", ""));
  EXPECT_THAT(Pieces(Fallback(), {2, 3, 3, 0}),
              ElementsAre("", "", "", "\uFFFD\uFFFD\uFFFD a", ""));
  EXPECT_THAT(Pieces(Fallback(), {2, 3}), ElementsAre("", "", "é"));
}

TEST(Detokenizer, StripAtTheEndIsHeldBack) {
  Json json = SmallTokenizer({"a", " ", "  "});
  json["decoder"] = ParseJson(R"({"type": "Sequence", "decoders": [
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 2}]})");
  EXPECT_THAT(Pieces(json, {0, 1, 0, 2, 1}), ElementsAre("a", "", " a", "", " ", ""));
}

TEST(Detokenizer, MetaspaceDropsTheMarksOfTheFirstToken) {
  Json json = SmallTokenizer({"▁a", "b▁"});
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  EXPECT_THAT(Pieces(json, {0, 0, 1}), ElementsAre("a", " a", "b ", ""));
  json["decoder"]["prepend_scheme"] = "never";
  EXPECT_THAT(Pieces(json, {0, 0}), ElementsAre(" a", " a", ""));
}

struct Stopped {
  std::string text;
  std::string stop;
};

Stopped Stop(StopStringMatcher matcher, const std::vector<std::string>& pieces) {
  Stopped stopped;
  for (const std::string& piece : pieces) {
    const StopStringMatcher::Result result = matcher.Push(piece);
    stopped.text += result.text;
    if (result.matched) stopped.stop = result.stop;
  }
  stopped.text += matcher.Flush();
  return stopped;
}

TEST(StopStringMatcher, HoldsBackTheBeginningOfAStop) {
  StopStringMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("aE").text, "a");
  EXPECT_EQ(matcher.Push("N").text, "");
  EXPECT_EQ(matcher.Push("EN").text, "EN");
  const StopStringMatcher::Result result = matcher.Push("D and more");
  EXPECT_TRUE(result.matched);
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop, "END");
  EXPECT_EQ(matcher.Push("x").text, "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopStringMatcher, FlushGivesWhatWasHeld) {
  StopStringMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("aEN").text, "a");
  EXPECT_EQ(matcher.Flush(), "EN");
}

TEST(StopStringMatcher, OverlappingStops) {
  EXPECT_EQ(Stop(StopStringMatcher({"bcd", "c"}), {"abcd"}).text, "ab");
  EXPECT_EQ(Stop(StopStringMatcher({"c", "bc"}), {"abcd"}).text, "a");
  EXPECT_EQ(Stop(StopStringMatcher({"c", "bc"}), {"abcd"}).stop, "bc");
  EXPECT_EQ(Stop(StopStringMatcher({"aab"}), {"aaab"}).text, "a");
}

TEST(StopStringMatcher, WithoutStopsNothingIsHeld) {
  StopStringMatcher none({});
  EXPECT_EQ(none.Push("abc").text, "abc");
  StopStringMatcher empty({""});
  const StopStringMatcher::Result result = empty.Push("abc");
  EXPECT_EQ(result.text, "abc");
  EXPECT_FALSE(result.matched);
}

TEST(StopStringMatcher, TheResultDoesNotDependOnThePieces) {
  std::mt19937 random(3);
  const auto letters = [&](size_t length) {
    std::string text;
    while (text.size() < length) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    const std::vector<std::string> stops = {letters(1 + random() % 5), letters(2 + random() % 5)};
    const std::string text = letters(random() % 20);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 4;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    const Stopped whole = Stop(StopStringMatcher(stops), {text});
    const Stopped streamed = Stop(StopStringMatcher(stops), pieces);
    ASSERT_EQ(whole.text, streamed.text) << text << " / " << stops[0] << ", " << stops[1];
    ASSERT_EQ(whole.stop, streamed.stop) << text << " / " << stops[0] << ", " << stops[1];
  }
}

}  // namespace
}  // namespace tandem::detokenizer_test
