// Expected tokens are those of HuggingFace tokenizers 0.23.3 for the same settings.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/tokenizer/small_tokenizer.h"

namespace tandem::added_tokens_test {
namespace {

using testing::ElementsAre;

class AddedTokensTest : public testing::Test {
 protected:
  // Adds `content` with the flags in `flags`.
  void Add(const std::string& content, const Json& flags = Json::object()) {
    Json token = AddedTokenJson(json_, content);
    token.update(flags);
    json_["added_tokens"].push_back(token);
  }
  std::vector<std::string> Of(std::string_view text, const EncodeOptions& options = {}) const {
    return Tokens(json_, text, options);
  }

  Json json_ = SmallTokenizer({"a", "b", "c", " ", "<", "s", ">", "A"});
};

TEST_F(AddedTokensTest, AreFoundBeforeAnythingElse) {
  Add("<s>");
  EXPECT_THAT(Of("a<s>b"), ElementsAre("a", "<s>", "b"));
  EXPECT_THAT(Of("<s><s>"), ElementsAre("<s>", "<s>"));
}

TEST_F(AddedTokensTest, LongestAtTheLeftmostPlaceWins) {
  Add("ab");
  Add("abc");
  Add("bca");
  EXPECT_THAT(Of("abca"), ElementsAre("abc", "a"));
  EXPECT_THAT(Of("aab"), ElementsAre("a", "ab"));
}

TEST_F(AddedTokensTest, StripTakesWhiteSpaceAlong) {
  Add("<s>", {{"lstrip", true}});
  EXPECT_THAT(Of("a  <s> b"), ElementsAre("a", "<s>", " ", "b"));
  json_["added_tokens"].clear();
  Add("<s>", {{"rstrip", true}});
  EXPECT_THAT(Of("a <s>  b"), ElementsAre("a", " ", "<s>", "b"));
}

TEST_F(AddedTokensTest, StrippedWhiteSpaceIsGoneForTheNext) {
  Add("<s>", {{"rstrip", true}});
  Add("b", {{"lstrip", true}});
  EXPECT_THAT(Of("<s>  b"), ElementsAre("<s>", "b"));
}

TEST_F(AddedTokensTest, SingleWordStandsAlone) {
  Add("ab", {{"single_word", true}});
  EXPECT_THAT(Of("ab abc cab <ab>"),
              ElementsAre("ab", " ", "a", "b", "c", " ", "c", "a", "b", " ", "<", "ab", ">"));
}

TEST_F(AddedTokensTest, NormalizedOnesAreFoundAfterNormalization) {
  json_["normalizer"] = {{"type", "Lowercase"}};
  Add("AB", {{"normalized", true}});
  EXPECT_THAT(Of("aBc"), ElementsAre("ab", "c"));
  json_["added_tokens"].clear();
  Add("AB");
  EXPECT_THAT(Of("aBcAB"), ElementsAre("a", "b", "c", "AB"));
}

TEST_F(AddedTokensTest, SpecialOnesCanBeReadAsText) {
  Add("<s>", {{"special", true}});
  Add("ab");
  EXPECT_THAT(Of("<s>ab", {SpecialTokens::kParse, Template::kAdd}), ElementsAre("<s>", "ab"));
  EXPECT_THAT(Of("<s>ab", {SpecialTokens::kAsText, Template::kAdd}),
              ElementsAre("<", "s", ">", "ab"));
}

TEST_F(AddedTokensTest, SpecialOnesAreLeftOutOfTextOnRequest) {
  Add("<s>", {{"special", true}});
  const auto tokenizer = Parse(json_);
  const int32_t id = *tokenizer->TokenId("<s>");
  EXPECT_TRUE(tokenizer->IsSpecial(id));
  EXPECT_FALSE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_EQ(*tokenizer->Decode({0, id, 1}, SkipSpecial::kYes), "ab");
  EXPECT_EQ(*tokenizer->Decode({0, id, 1}, SkipSpecial::kNo), "a<s>b");
}

TEST_F(AddedTokensTest, EveryPieceBetweenThemIsNormalizedByItself) {
  json_["normalizer"] = {{"type", "Prepend"}, {"prepend", "A"}};
  Add("<s>");
  EXPECT_THAT(Of("b<s>c"), ElementsAre("A", "b", "<s>", "A", "c"));
  EXPECT_THAT(Of("<s>"), ElementsAre("<s>"));
  EXPECT_THAT(Of(""), ElementsAre());
}

}  // namespace
}  // namespace tandem::added_tokens_test
