#include "server/openai/model_files.h"

#include "gtest/gtest.h"

namespace tandem::openai::model_files_test {
namespace {

TEST(ModelFilesTest, SpecialTokensAreTheirTexts) {
  const Json info = TokenizerInfo(
      R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"chat_template":"x",
          "added_tokens_decoder":{}})");
  EXPECT_EQ(info["bos_token"], "<s>");
  EXPECT_EQ(info["eos_token"], "</s>");
  EXPECT_TRUE(info["pad_token"].is_null());
  EXPECT_EQ(info["chat_template"], "x");
  EXPECT_FALSE(info.contains("added_tokens_decoder"));
}

TEST(ModelFilesTest, AFileThatIsNoneHasNoFields) {
  EXPECT_TRUE(TokenizerInfo("")["eos_token"].is_null());
  EXPECT_TRUE(TokenizerInfo("[1]")["eos_token"].is_null());
}

TEST(ModelFilesTest, WithoutAFolderThereAreNoChats) {
  const ModelFiles files = LoadModelFiles("");
  EXPECT_EQ(files.chat, nullptr);
  EXPECT_FALSE(files.no_chat.ok());
}

}  // namespace
}  // namespace tandem::openai::model_files_test
