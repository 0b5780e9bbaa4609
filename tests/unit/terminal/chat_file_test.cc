#include "server/terminal/chat_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::terminal::chat_file_test {
namespace {

using ::testing::HasSubstr;

class ChatFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string directory = ::testing::TempDir() + "chatXXXXXX";
    directory_ = mkdtemp(directory.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string File(const std::string& name) const { return directory_ / name; }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  std::filesystem::path directory_;
};

Conversation OneQuestion(const std::string& text) {
  Conversation chat;
  chat.Ask(text);
  return chat;
}

TEST_F(ChatFileTest, AChatIsWrittenForItsOwnerAloneAndReadBack) {
  const absl::Status saved = SaveChat(OneQuestion("secret?"), File("chat.json"));
  ASSERT_TRUE(saved.ok()) << saved;
  struct stat info {};
  ASSERT_EQ(stat(File("chat.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  const auto read = LoadChat(File("chat.json"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Messages(), OneQuestion("secret?").Messages());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1)
      << "no draft is left";
}

TEST_F(ChatFileTest, AnOlderChatIsReplacedAndItsModeTightened) {
  Write(File("chat.json"), "[]");
  chmod(File("chat.json").c_str(), 0644);
  EXPECT_TRUE(SaveChat(OneQuestion("new"), File("chat.json")).ok());
  struct stat info {};
  ASSERT_EQ(stat(File("chat.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(ChatFileTest, AnotherFileIsNeverReplaced) {
  Write(File("notes"), "mine");
  const absl::Status saved = SaveChat(OneQuestion("a"), File("notes"));
  EXPECT_TRUE(absl::IsFailedPrecondition(saved));
  EXPECT_THAT(std::string(saved.message()), HasSubstr("exists and is no saved chat"));
  std::ifstream file(File("notes"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "mine");
  EXPECT_FALSE(SaveChat(OneQuestion("a"), directory_).ok());
  EXPECT_FALSE(SaveChat(OneQuestion("a"), "/dev/null").ok());
}

TEST_F(ChatFileTest, WhatCannotBeReadIsNamed) {
  const auto missing = LoadChat(File("missing"));
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("missing"));
  Write(File("bad"), "no");
  EXPECT_THAT(std::string(LoadChat(File("bad")).status().message()), HasSubstr("bad: it is not"));
  EXPECT_TRUE(absl::IsInvalidArgument(LoadChat("/dev/zero").status()));
  EXPECT_TRUE(absl::IsNotFound(SaveChat(OneQuestion("a"), File("no/such/folder"))));
}

TEST_F(ChatFileTest, TheHomeOfAPathIsThatOfTheEnvironment) {
  ASSERT_NE(getenv("HOME"), nullptr);
  EXPECT_EQ(ExpandHome("~/a"), std::string(getenv("HOME")) + "/a");
  EXPECT_EQ(ExpandHome("a/~/b"), "a/~/b");
}

}  // namespace
}  // namespace tandem::terminal::chat_file_test
