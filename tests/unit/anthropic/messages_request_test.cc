#include "server/anthropic/messages_request.h"

#include <string>
#include <tuple>

#include "base/json.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/anthropic/messages_error.h"

namespace tandem::anthropic::messages_request_test {
namespace {

using openai::Json;
using testing::HasSubstr;

absl::StatusOr<openai::ChatRequest> Parse(std::string_view body,
                                          MaxTokens max_tokens = MaxTokens::kRequired) {
  absl::StatusOr<Json> json = openai::ParseJsonBody(body);
  EXPECT_TRUE(json.ok()) << json.status() << body;
  return ParseMessages(*std::move(json), max_tokens);
}

absl::StatusOr<openai::ChatRequest> ParseFields(const std::string& fields) {
  return Parse(R"({"max_tokens":9,)" + fields + "}");
}

// The messages that the template gets.
std::string MessagesOf(const std::string& fields) {
  const auto chat = ParseFields(fields);
  EXPECT_TRUE(chat.ok()) << chat.status();
  return chat.ok() ? JsonText(chat->input.messages) : "";
}

void ExpectError(const std::string& fields, const std::string& says) {
  const absl::Status status = ParseFields(fields).status();
  ASSERT_FALSE(status.ok()) << fields;
  const HttpResponse response = ErrorResponse(status, "r");
  EXPECT_EQ(response.status, 400) << fields;
  const Json json = ParseOrderedJson(response.body).value;
  EXPECT_EQ(json["type"], "error");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["request_id"], "r");
  EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(says));
}

const std::string kHi = R"("messages":[{"role":"user","content":"hi"}])";

TEST(MessagesRequestTest, TheSystemComesFirst) {
  EXPECT_EQ(MessagesOf(kHi), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(MessagesOf(R"("system":"s",)" + kHi),
            R"([{"role":"system","content":"s"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(MessagesOf(R"("system":[{"type":"text","text":"s",
                "cache_control":{"type":"ephemeral"}}],)" +
                       kHi),
            R"([{"role":"system","content":"s"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(MessagesOf(R"("system":[],)" + kHi), R"([{"role":"user","content":"hi"}])");
}

TEST(MessagesRequestTest, BlocksBecomeTheMessagesOfAChat) {
  EXPECT_EQ(MessagesOf(R"("messages":[
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"x"},
        {"type":"redacted_thinking","data":"x"},
        {"type":"text","text":"look"},
        {"type":"tool_use","id":"t1","name":"f","input":{"x":1}},
        {"type":"tool_use","id":"t2","name":"g","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t1","content":"one"},
        {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"two"}],
         "is_error":true},
        {"type":"text","text":"and?"}]}])"),
            R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":"look","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"t1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},)"
            R"({"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","content":"one","tool_call_id":"t1"},)"
            R"({"role":"tool","content":"two","tool_call_id":"t2"},)"
            R"({"role":"user","content":"and?"}])");
}

TEST(MessagesRequestTest, ResultsWithoutContentAreEmpty) {
  EXPECT_EQ(MessagesOf(R"("messages":[{"role":"user","content":[
                {"type":"tool_result","tool_use_id":"t"}]}])"),
            R"([{"role":"tool","content":"","tool_call_id":"t"}])");
}

TEST(MessagesRequestTest, TurnsOfTheSameRoleAreOne) {
  EXPECT_EQ(
      MessagesOf(R"("messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}])"),
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
}

TEST(MessagesRequestTest, ALastMessageOfTheAssistantIsContinued) {
  const auto chat = ParseFields(
      R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"It"}])");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE(chat->input.continue_final_message);
  EXPECT_FALSE(chat->input.add_generation_prompt);
  const auto call = ParseFields(
      R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]}])");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_FALSE(call->input.continue_final_message);
}

TEST(MessagesRequestTest, FieldsHaveTheirMeaning) {
  const auto chat = ParseFields(
      R"("model":"m","temperature":0.5,"top_p":0.25,"top_k":3,"stop_sequences":["x","y"],
         "stream":true,"metadata":{"user_id":"u"},"service_tier":"auto","seed":4,
         "thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"low"},)" +
      kHi);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const v1::GenerateRequest& fields = chat->request;
  EXPECT_EQ(fields.max_tokens(), 9);
  EXPECT_EQ(fields.sampling().temperature(), 0.5F);
  EXPECT_EQ(fields.sampling().top_p(), 0.25F);
  EXPECT_EQ(fields.sampling().top_k(), 3);
  EXPECT_EQ(fields.sampling().seed(), 4u);
  EXPECT_EQ(fields.stop_size(), 2);
  EXPECT_EQ(fields.tenant(), "u");
  EXPECT_TRUE(chat->answer.stream);
  EXPECT_EQ(JsonText(chat->input.variables),
            R"({"enable_thinking":true,"reasoning_effort":"low"})");
}

TEST(MessagesRequestTest, ThinkingIsAVariableOfTheTemplate) {
  const auto variables = [](const std::string& fields) {
    const auto chat = ParseFields(fields + "," + kHi);
    EXPECT_TRUE(chat.ok()) << chat.status();
    return JsonText(chat->input.variables);
  };
  EXPECT_EQ(variables(R"("thinking":{"type":"disabled"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"("thinking":{"type":"adaptive"})"), "null");
  EXPECT_EQ(variables(R"("thinking":{"type":"disabled"},
                         "chat_template_kwargs":{"enable_thinking":true})"),
            R"({"enable_thinking":true})");
}

TEST(MessagesRequestTest, ToolsHaveTheFormOfChats) {
  const auto chat = ParseFields(
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},
                   "cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g",
                   "input_schema":{}}],"tool_choice":{"type":"auto"},)" +
      kHi);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(JsonText(chat->input.tools),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}},)"
            R"({"type":"function","function":{"name":"g","parameters":{}}}])");
  const auto none = ParseFields(
      R"("tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"none"},)" + kHi);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->input.tools.is_null());
  EXPECT_TRUE(ParseFields(R"("tools":[],"tool_choice":{"type":"auto"},)" + kHi).ok());
}

TEST(MessagesRequestTest, CountingTokensNeedsNoLimit) {
  EXPECT_FALSE(Parse("{" + kHi + "}").ok());
  EXPECT_TRUE(Parse("{" + kHi + "}", MaxTokens::kUnused).ok());
}

TEST(MessagesRequestTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  ExpectError(R"("mcp_servers":[{"name":"x"}],)" + kHi, "mcp_servers");
  ExpectError(R"("container":"c",)" + kHi, "container");
  ExpectError(R"("context_management":{"edits":[{}]},)" + kHi, "context_management");
  ExpectError(R"("tools":[{"type":"web_search_20250305","name":"web_search"}],)" + kHi,
              "tools[0].type=\"web_search_20250305\"");
  ExpectError(R"("n":2,)" + kHi, "n is not supported");
  ExpectError(R"("output_config":{"format":{"type":"xml"}},)" + kHi, "output_config.format.type");
  ExpectError(R"("output_format":{"type":"xml"},)" + kHi, "output_config.format.type");
  for (const char* type : {"image", "document", "search_result", "server_tool_use"}) {
    ExpectError(
        R"("messages":[{"role":"user","content":[{"type":")" + std::string(type) + R"("}]}])",
        "messages[0].content[0].type=\"" + std::string(type));
  }
  ExpectError(R"("messages":[{"role":"user","content":[{"type":"tool_use"}]}])", "role user");
  ExpectError(R"("messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
                 "content":[{"type":"image"}]}]}])",
              "image");
}

TEST(MessagesRequestTest, WrongFieldsAreNamed) {
  ExpectError(R"("x":1)", "messages is missing");
  ExpectError(R"("messages":[])", "at least one message");
  ExpectError(R"("messages":"hi")", "messages must be a list");
  ExpectError(R"("messages":[7])", "messages[0] must be an object");
  ExpectError(R"("messages":[{"content":"x"}])", "messages[0].role is missing");
  ExpectError(R"("messages":[{"role":"king","content":"x"}])", "king");
  ExpectError(R"("messages":[{"role":"user"}])", "messages[0].content is missing");
  ExpectError(R"("messages":[{"role":"user","content":[{"type":"text"}]}])",
              "messages[0].content[0].text is missing");
  ExpectError(R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t",
                 "name":"f","input":"x"}]}])",
              "messages[0].content[0].input must be an object");
  ExpectError(R"("stop_sequences":7,)" + kHi, "stop_sequences must be");
  ExpectError(R"("system":7,)" + kHi, "system must be a list");
  ExpectError(R"("thinking":{"type":"maybe"},)" + kHi, "thinking.type=\"maybe\"");
  ExpectError(R"("tool_choice":{"type":"some"},)" + kHi, "tool_choice.type=\"some\"");
  ExpectError(R"("tool_choice":{"type":"any"},)" + kHi, "goes with tools only");
  ExpectError(R"("tools":[{"input_schema":{}}],)" + kHi, "tools[0].name is missing");
}

TEST(MessagesErrorTest, EveryStatusHasItsType) {
  for (const auto& [status, http, type] :
       {std::tuple(InvalidArgument("a"), 400, "invalid_request_error"),
        std::tuple(NotFound("a"), 404, "not_found_error"),
        std::tuple(ResourceExhausted("a"), 429, "rate_limit_error"),
        std::tuple(Internal("a"), 500, "api_error"),
        std::tuple(Unavailable("a"), 503, "overloaded_error"),
        std::tuple(DeadlineExceeded("a"), 504, "timeout_error")}) {
    const HttpResponse response = ErrorResponse(status, "r");
    EXPECT_EQ(response.status, http);
    EXPECT_EQ(ParseOrderedJson(response.body).value["error"]["type"], type);
  }
}

}  // namespace
}  // namespace tandem::anthropic::messages_request_test
