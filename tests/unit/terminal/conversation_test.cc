#include "server/terminal/conversation.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::terminal::conversation_test {
namespace {

using ::testing::HasSubstr;

Conversation::Json Assistant(const std::string& text) {
  return {{"role", "assistant"}, {"content", text}};
}

Conversation TwoTurns() {
  Conversation chat;
  chat.set_system("Be brief.");
  chat.Ask("one?");
  chat.Answer(Assistant("one."));
  chat.Ask("two?");
  chat.Answer(Assistant("two."));
  return chat;
}

std::string Refusal(std::string_view text) {
  const auto chat = Conversation::Parse(text);
  EXPECT_TRUE(absl::IsInvalidArgument(chat.status())) << text;
  return std::string(chat.status().message());
}

TEST(ConversationTest, MessagesBeginWithTheSystemText) {
  const Conversation::Json messages = TwoTurns().Messages();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0], Conversation::Json({{"role", "system"}, {"content", "Be brief."}}));
  EXPECT_EQ(messages[3], Conversation::Json({{"role", "user"}, {"content", "two?"}}));
}

TEST(ConversationTest, AQuestionIsTakenBackWithItsAnswer) {
  Conversation chat = TwoTurns();
  EXPECT_EQ(chat.TakeBack(), "two?");
  EXPECT_EQ(chat.num_turns(), 1u);
  EXPECT_EQ(chat.Messages().back(), Conversation::Json(Assistant("one.")));
  chat.Ask("three?");
  EXPECT_TRUE(chat.is_unanswered());
  EXPECT_EQ(chat.TakeBack(), "three?");
  EXPECT_FALSE(chat.is_unanswered());
}

TEST(ConversationTest, TheOldestTurnIsForgottenButNeverTheLast) {
  Conversation chat = TwoTurns();
  EXPECT_TRUE(chat.DropOldest());
  const Conversation::Json messages = chat.Messages();
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "two?");
  EXPECT_FALSE(chat.DropOldest());
  EXPECT_EQ(chat.num_turns(), 1u);
}

TEST(ConversationTest, ANewChatKeepsTheSystemText) {
  Conversation chat = TwoTurns();
  chat.Clear();
  EXPECT_EQ(chat.num_turns(), 0u);
  EXPECT_EQ(chat.system(), "Be brief.");
  EXPECT_FALSE(chat.is_unanswered());
}

TEST(ConversationTest, WhatIsWrittenIsReadAsTheSameChat) {
  Conversation chat = TwoTurns();
  chat.Answer(
      {{"role", "assistant"}, {"content", ""}, {"tool_calls", Conversation::Json::array({1})}});
  chat.Ask("\033[2J — “né” 😀\nline");
  const auto read = Conversation::Parse(chat.ToText());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Messages(), chat.Messages());
  EXPECT_EQ(read->system(), "Be brief.");
  EXPECT_TRUE(read->is_unanswered());
}

TEST(ConversationTest, TextThatIsNoUtf8IsStillWritten) {
  Conversation chat;
  chat.Ask("a\xff");
  EXPECT_THAT(chat.ToText(), HasSubstr("a\ufffd"));
}

TEST(ConversationTest, TheBodyOfARequestIsReadToo) {
  const auto chat = Conversation::Parse(
      R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(Conversation(*chat).TakeBack(), "a");
}

TEST(ConversationTest, WhatIsNoChatIsRefusedWithTheReason) {
  EXPECT_THAT(Refusal("no"), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("no messages"));
  EXPECT_THAT(Refusal("3"), HasSubstr("no messages"));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("message 0 has no role"));
  EXPECT_THAT(Refusal(R"([{"role": "user", "content": "a"}, {"role": 3}])"),
              HasSubstr("message 1 has no role"));
  EXPECT_THAT(Refusal(R"([{"role": "user"}])"), HasSubstr("has no content"));
  EXPECT_THAT(Refusal(std::string(100000, '[')), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace tandem::terminal::conversation_test
