#include <fstream>
#include <sstream>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"
#include "tests/unit/tokenizer/small_tokenizer.h"

namespace tandem::encode_parts_test {
namespace {

using testing::ElementsAre;

constexpr EncodeOptions kNoTemplate = {.add_template = Template::kOmit};

TextPart Written(std::string text) { return {std::move(text), false}; }
TextPart Input(std::string text) { return {std::move(text), true}; }

class EncodePartsTest : public testing::Test {
 protected:
  void Add(const std::string& content, const Json& flags = Json::object()) {
    Json token = AddedTokenJson(json_, content);
    token.update(flags);
    json_["added_tokens"].push_back(token);
  }
  std::vector<std::string> Of(const std::vector<TextPart>& parts) const {
    const auto tokenizer = Parse(json_);
    const auto ids = tokenizer->EncodeParts(parts, kNoTemplate);
    EXPECT_TRUE(ids.ok()) << ids.status();
    std::vector<std::string> tokens;
    for (const int32_t id : *ids) tokens.push_back(*tokenizer->Decode({id}, SkipSpecial::kNo));
    return tokens;
  }

  Json json_ = SmallTokenizer({"a", "b", "c", " ", "<", "s", ">", "A", "x"});
};

TEST_F(EncodePartsTest, ControlTokensOfTheInputAreText) {
  Add("<s>", {{"special", true}});
  EXPECT_THAT(Of({Written("<s>"), Input("a<s>b"), Written("<s>")}),
              ElementsAre("<s>", "a", "<", "s", ">", "b", "<s>"));
}

TEST_F(EncodePartsTest, NoByteOfTheInputCompletesAControlToken) {
  Add("<s>", {{"special", true}});
  EXPECT_THAT(Of({Written("<"), Input("s"), Written(">")}), ElementsAre("<", "s", ">"));
  EXPECT_THAT(Of({Input("<s"), Written(">")}), ElementsAre("<", "s", ">"));
  EXPECT_THAT(Of({Written("<"), Input("s>")}), ElementsAre("<", "s", ">"));
  EXPECT_THAT(Of({Written("<"), Written("s>")}), ElementsAre("<s>"));
}

TEST_F(EncodePartsTest, AShorterTokenOfTheTemplateIsFoundBeforeInput) {
  Add("<s>", {{"special", true}});
  Add("<s>a", {{"special", true}});
  EXPECT_THAT(Of({Written("<s>"), Input("ab")}), ElementsAre("<s>", "a", "b"));
  EXPECT_THAT(Of({Written("<s>ab")}), ElementsAre("<s>a", "b"));
}

TEST_F(EncodePartsTest, MarkupIsControlEvenWhereItIsNotSpecial) {
  Add("<x>");
  EXPECT_THAT(Of({Input("<x>"), Written("<x>")}), ElementsAre("<", "x", ">", "<x>"));
}

TEST_F(EncodePartsTest, AddedWordsAndSpacesAreFoundEverywhere) {
  Add("  ");
  Add("abc");
  EXPECT_THAT(Of({Input("abc  a"), Written("b"), Input("c")}), ElementsAre("abc", "  ", "abc"));
}

TEST_F(EncodePartsTest, ControlTokensStripTheWhiteSpaceOfTheInput) {
  Add("<s>", {{"special", true}, {"rstrip", true}});
  EXPECT_THAT(Of({Written("<s>"), Input("  a")}), ElementsAre("<s>", "a"));
}

TEST_F(EncodePartsTest, MarksFollowTheTextThroughTheNormalizer) {
  Add("<s>", {{"special", true}, {"normalized", true}});
  for (const char* normalizer :
       {R"({"type": "Lowercase"})", R"({"type": "NFC"})", R"({"type": "Strip"})",
        R"({"type": "Replace", "pattern": {"String": "A"}, "content": "b"})"}) {
    json_["normalizer"] = ParseJson(normalizer);
    const auto tokens = Of({Written("<s>"), Input("a<s>"), Written("b<s>")});
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), "<s>"), 2) << normalizer;
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), "s"), 1) << normalizer;
  }
}

// Tokenizers as models have them (tests/golden/tokenizer).
class EncodePartsOfModelsTest : public testing::TestWithParam<const char*> {
 protected:
  EncodePartsOfModelsTest() {
    std::ifstream file(TreePath("tests/golden/tokenizer/") + GetParam());
    std::ostringstream text;
    text << file.rdbuf();
    auto parsed = ParseTokenizerJson(text.str());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    tokenizer_ = *std::move(parsed);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(EncodePartsOfModelsTest, BordersWithoutControlTokensChangeNothing) {
  const std::string text =
      "It was  a fine morning,\n\n  and Größe's 12345 Elinor n\xCC\x83 日本語.";
  const auto whole = tokenizer_->Encode(text, kNoTemplate);
  ASSERT_TRUE(whole.ok());
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) continue;
    const std::vector<TextPart> parts = {Written(text.substr(0, i)), Input(text.substr(i))};
    EXPECT_EQ(*tokenizer_->EncodeParts(parts, kNoTemplate), *whole) << i;
    const std::vector<TextPart> turned = {Input(text.substr(0, i)), Written(text.substr(i))};
    EXPECT_EQ(*tokenizer_->EncodeParts(turned, kNoTemplate), *whole) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, EncodePartsOfModelsTest,
                         testing::Values("falcon.json", "gpt2.json", "llama3.json", "qwen.json",
                                         "spm.json", "spm_metaspace.json"));

}  // namespace
}  // namespace tandem::encode_parts_test
