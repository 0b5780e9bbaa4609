#include "server/eval/eval_texts.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::eval_texts_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EvalTextsTest : public testing::Test {
 protected:
  EvalTextsTest() {
    std::string directory = ::testing::TempDir() + "evaltextsXXXXXX";
    directory_ = mkdtemp(directory.data());
  }
  ~EvalTextsTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(directory_ / name) << content;
    return directory_ / name;
  }
  void ExpectRefused(const std::string& path, const std::string& why) const {
    const absl::Status status = ReadEvalTexts(path).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret"))) << "texts stay private";
  }

  std::filesystem::path directory_;
};

TEST_F(EvalTextsTest, AFileIsOneTextUnderItsName) {
  const auto texts = ReadEvalTexts(Write("book.txt", "{\"text\": 1}\nline\n"));
  ASSERT_TRUE(texts.ok()) << texts.status();
  ASSERT_EQ(texts->size(), 1u);
  EXPECT_EQ((*texts)[0].name, "book.txt");
  EXPECT_EQ((*texts)[0].text, "{\"text\": 1}\nline\n");
}

TEST_F(EvalTextsTest, LinesOfJsonAreTextsOfTheirOwn) {
  const auto texts = ReadEvalTexts(
      Write("set.jsonl", "{\"text\": \"a\\nb\", \"name\": \"first\"}\n\n{\"text\": \"c\"}"));
  ASSERT_TRUE(texts.ok()) << texts.status();
  ASSERT_EQ(texts->size(), 2u);
  EXPECT_EQ((*texts)[0].name, "first");
  EXPECT_EQ((*texts)[0].text, "a\nb");
  EXPECT_EQ((*texts)[1].name, "set.jsonl:3");
  EXPECT_EQ((*texts)[1].text, "c");
}

TEST_F(EvalTextsTest, WhatIsWrongIsSaidWithItsPlace) {
  ExpectRefused(directory_ / "absent.txt", "absent.txt cannot be read");
  ExpectRefused(directory_, "cannot be read");
  ExpectRefused(Write("latin.txt", "secret \xe9t\xe9"), "is not UTF-8: byte 7");
  ExpectRefused(Write("a.jsonl", "{\"text\": \"ok\"}\nsecret"), "a.jsonl:2: it is no JSON object");
  ExpectRefused(Write("b.jsonl", "{\"secret\": \"x\"}"), "b.jsonl:1: it has no \"text\"");
  ExpectRefused(Write("c.jsonl", "{\"text\": 5}"), "it has no \"text\"");
  ExpectRefused(Write("d.jsonl", "{\"text\": \"secret\", \"name\": 5}"), "its \"name\" is no text");
}

}  // namespace
}  // namespace tandem::eval_texts_test
