#include "server/openai/token_texts.h"

#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/tree.h"

namespace tandem::openai::token_texts_test {
namespace {

TEST(TokenTextsTest, ATokenWithinACharacterIsWrittenAsItsBytes) {
  const auto tokenizer = LoadTokenizer(SampleModel());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const TokenTexts texts(tokenizer->get());
  // A character that the sample's vocabulary has no token for.
  const std::string rare = "\U0001F600";
  const auto ids = (*tokenizer)->Encode(rare, {.add_template = Template::kOmit});
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_GT(ids->size(), 1u);
  std::string bytes;
  for (const int32_t id : *ids) {
    const TokenTexts::Text text = texts.Of(id);
    EXPECT_TRUE(text.text.starts_with("bytes:\\x")) << text.text;
    bytes += text.bytes;
  }
  EXPECT_EQ(bytes, rare);
}

TEST(TokenTextsTest, TextsOfTokensMakeTheText) {
  const auto tokenizer = LoadTokenizer(SampleModel());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const TokenTexts texts(tokenizer->get());
  const std::string sentence = " It was a fine morning, and Emma walked.";
  const auto ids = (*tokenizer)->Encode(sentence, {.add_template = Template::kOmit});
  ASSERT_TRUE(ids.ok()) << ids.status();
  std::string joined;
  for (const int32_t id : *ids) joined += texts.Of(id).text;
  EXPECT_EQ(joined, sentence);
}

TEST(TokenTextsTest, WithoutATokenizerIdsAreTheNames) {
  EXPECT_EQ(TokenTexts(nullptr).Of(12).text, "token_id:12");
}

TEST(TokenTextsTest, CharactersAreCounted) {
  EXPECT_EQ(CountCharacters(""), 0u);
  EXPECT_EQ(CountCharacters("aé\U0001F600"), 3u);
}

}  // namespace
}  // namespace tandem::openai::token_texts_test
