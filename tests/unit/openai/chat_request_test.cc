#include "server/openai/chat_request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/api_error.h"

namespace tandem::openai::chat_request_test {
namespace {

using testing::HasSubstr;

absl::StatusOr<ChatRequest> ParseFields(std::string_view fields) {
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  absl::StatusOr<Json> json =
      ParseJsonBody("{" + messages + (fields.empty() ? "" : ",") + std::string(fields) + "}");
  EXPECT_TRUE(json.ok()) << json.status();
  return ParseChat(*std::move(json));
}

void ExpectError(std::string_view fields, const std::string& param) {
  const absl::Status status = ParseFields(fields).status();
  EXPECT_FALSE(status.ok()) << fields;
  EXPECT_EQ(ToApiError(status).http_status, 400) << status;
  EXPECT_EQ(ToApiError(status).param, param) << status;
}

std::string MessageOf(std::string_view fields) {
  return std::string(ParseFields(fields).status().message());
}

TEST(ChatRequestTest, MessagesToolsAndVariablesGoToTheTemplate) {
  const auto chat = ParseFields(R"("tools":[{"type":"function","function":{"name":"f"}}],
      "documents":[{"title":"t"}],"chat_template_kwargs":{"enable_thinking":false},
      "reasoning_effort":"low")");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(JsonText(chat->input.messages), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(JsonText(chat->input.tools), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(JsonText(chat->input.documents), R"([{"title":"t"}])");
  EXPECT_EQ(JsonText(chat->input.variables),
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_TRUE(chat->input.add_generation_prompt);
  EXPECT_FALSE(chat->request.has_max_tokens());
}

TEST(ChatRequestTest, TheNewerNameOfTheLimitWins) {
  const auto chat = ParseFields(R"("max_tokens":5,"max_completion_tokens":7)");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->request.max_tokens(), 7);
}

TEST(ChatRequestTest, TopLogprobsNeedLogprobs) {
  ExpectError(R"("top_logprobs":2)", "top_logprobs");
  ExpectError(R"("logprobs":true,"top_logprobs":21)", "top_logprobs");
  const auto chat = ParseFields(R"("logprobs":true,"top_logprobs":2)");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->request.sampling().logprobs(), 2);
  const auto without = ParseFields(R"("logprobs":false,"top_logprobs":0)");
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE(without->request.sampling().has_logprobs());
}

TEST(ChatRequestTest, AMessageIsContinuedWithoutAGenerationPrompt) {
  const auto chat = ParseFields(R"("continue_final_message":true)");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_FALSE(chat->input.add_generation_prompt);
  ExpectError(R"("continue_final_message":true,"add_generation_prompt":true)",
              "continue_final_message");
}

TEST(ChatRequestTest, NoToolCanBeDemanded) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}],)";
  ExpectError(tools + R"("tool_choice":"required")", "tool_choice");
  EXPECT_THAT(MessageOf(tools + R"("tool_choice":"required")"), HasSubstr("no grammar"));
  ExpectError(tools + R"("tool_choice":{"type":"function","function":{"name":"f"}})",
              "tool_choice");
  ExpectError(R"("tool_choice":"auto")", "tool_choice");
  ExpectError(R"("tools":[])", "tools");
  EXPECT_TRUE(ParseFields(tools + R"("tool_choice":"auto")").ok());
  const auto none = ParseFields(tools + R"("tool_choice":"none")");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->input.tools.is_null());
}

TEST(ChatRequestTest, WhatWouldChangeTheAnswerIsRefused) {
  ExpectError(R"("functions":[{}])", "functions");
  ExpectError(R"("modalities":["text","audio"])", "modalities");
  ExpectError(R"("chat_template":"{{ x }}")", "chat_template");
  EXPECT_TRUE(
      ParseFields(R"("modalities":["text"],"store":false,"parallel_tool_calls":true)").ok());
  EXPECT_THAT(std::string(ParseChat(Json::object()).status().message()), HasSubstr("messages"));
}

TEST(ChatRequestTest, AChatNeedsAMessage) {
  const absl::StatusOr<Json> json = ParseJsonBody(R"({"messages":[]})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(ParseChat(*json).status().message(), "messages is an empty list: give at least one");
}

}  // namespace
}  // namespace tandem::openai::chat_request_test
