#include "server/openai/responses/responses_request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::openai::responses_request_test {
namespace {

using testing::HasSubstr;

absl::StatusOr<ResponsesRequest> Parse(std::string_view body) {
  absl::StatusOr<Json> json = ParseJsonBody(body);
  EXPECT_TRUE(json.ok()) << json.status() << body;
  return ParseResponses(*std::move(json));
}

// The messages that the template gets.
std::string MessagesOf(const std::string& fields) {
  const auto request = Parse("{" + fields + "}");
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? JsonText(request->chat.input.messages) : "";
}

ApiError ErrorOf(const std::string& fields) {
  const absl::Status status = Parse("{" + fields + "}").status();
  EXPECT_FALSE(status.ok()) << fields;
  ApiError error = ToApiError(status);
  RenameForResponses(error);
  return error;
}

void ExpectError(const std::string& fields, const std::string& param, const std::string& says) {
  const ApiError error = ErrorOf(R"("input":"hi",)" + fields);
  EXPECT_EQ(error.http_status, 400) << fields;
  EXPECT_EQ(error.param, param) << error.message;
  EXPECT_THAT(error.message, HasSubstr(says));
}

TEST(ResponsesRequestTest, ATextIsAMessageAfterItsInstructions) {
  EXPECT_EQ(MessagesOf(R"("input":"hi")"), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(MessagesOf(R"("input":"hi","instructions":"be brief")"),
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
}

TEST(ResponsesRequestTest, ItemsOfATurnBecomeOneMessage) {
  EXPECT_EQ(MessagesOf(R"("input":[
      {"role":"developer","content":"d"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                                                 {"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs_1","summary":[],
       "content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"look"}]},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
      {"type":"function_call","call_id":"c2","name":"g","arguments":"{\"x\":1}"},
      {"type":"function_call_output","call_id":"c1","output":"one"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]},
      {"role":"user","content":"and?"}])"),
            R"([{"role":"developer","content":"d"},)"
            R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":"look","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]},)"
            R"({"role":"tool","content":"one","tool_call_id":"c1"},)"
            R"({"role":"tool","content":"two","tool_call_id":"c2"},)"
            R"({"role":"user","content":"and?"}])");
}

TEST(ResponsesRequestTest, MessagesOfTheSameRoleStayApart) {
  EXPECT_EQ(MessagesOf(R"("input":[{"role":"user","content":"a"},{"role":"user","content":"b"},
                                   {"role":"assistant","content":"c"},
                                   {"role":"assistant","content":"d"}])"),
            R"([{"role":"user","content":"a"},{"role":"user","content":"b"},)"
            R"({"role":"assistant","content":"c"},{"role":"assistant","content":"d"}])");
}

TEST(ResponsesRequestTest, ReasoningThatNothingCameOfIsLeftOut) {
  EXPECT_EQ(MessagesOf(R"("input":[{"role":"user","content":"a"},{"type":"reasoning","id":"r",
      "summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"role":"user","content":"b"}])"),
            R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])");
}

TEST(ResponsesRequestTest, FieldsHaveTheirMeaning) {
  const auto request = Parse(
      R"({"input":"hi","max_output_tokens":7,"temperature":0.5,"top_p":0.25,"top_k":3,"seed":9,
          "model":"m","user":"u","stream":true,"stream_options":{"include_obfuscation":false},
          "store":false,"include":["reasoning.encrypted_content"],"metadata":{"a":"b"},
          "truncation":"auto","service_tier":"auto","prompt_cache_key":"k","tools":[],
          "tool_choice":"auto","background":false,"previous_response_id":null,"max_tool_calls":3,
          "text":{"format":{"type":"text"},"verbosity":"low"},"reasoning":{"effort":"low"}})");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::GenerateRequest& fields = request->chat.request;
  EXPECT_EQ(fields.max_tokens(), 7);
  EXPECT_EQ(fields.sampling().temperature(), 0.5F);
  EXPECT_EQ(fields.sampling().top_p(), 0.25F);
  EXPECT_EQ(fields.sampling().top_k(), 3);
  EXPECT_EQ(fields.sampling().seed(), 9u);
  EXPECT_EQ(fields.model(), "m");
  EXPECT_EQ(fields.tenant(), "u");
  EXPECT_TRUE(request->chat.answer.stream);
  EXPECT_TRUE(request->chat.input.tools.is_null());
  EXPECT_EQ(JsonText(request->chat.input.variables), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(JsonText(request->echo),
            R"({"instructions":null,"max_output_tokens":7,"metadata":{"a":"b"},)"
            R"("parallel_tool_calls":true,"reasoning":{"effort":"low"},"temperature":0.5,)"
            R"("text":{"format":{"type":"text"},"verbosity":"low"},"tool_choice":"auto",)"
            R"("tools":[],"top_p":0.25,"user":"u"})");
}

TEST(ResponsesRequestTest, NoReasoningIsAVariableOfTheTemplate) {
  const auto none = Parse(R"({"input":"hi","reasoning":{"effort":"none"}})");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->chat.input.variables["enable_thinking"], false);
  const auto own = Parse(R"({"input":"hi","reasoning":{"effort":"none"},
                             "chat_template_kwargs":{"enable_thinking":true}})");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->chat.input.variables["enable_thinking"], true);
}

TEST(ResponsesRequestTest, FunctionsAreToolsAndAreRepeatedAsTheyCame) {
  const auto request = Parse(R"({"input":"hi","tools":[{"type":"function","name":"f",
      "description":"d","parameters":{"type":"object"},"strict":false}],"tool_choice":"none"})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->chat.input.tools.is_null()) << "tool_choice is none";
  EXPECT_EQ(request->echo["tools"][0]["name"], "f");
  const auto automatic = Parse(R"({"input":"hi","tools":[{"type":"function","name":"f",
      "description":"d","parameters":{"type":"object"},"strict":false}]})");
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  EXPECT_EQ(JsonText(automatic->chat.input.tools),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"},"strict":false}}])");
}

TEST(ResponsesRequestTest, WhatNeedsAStoredAnswerIsRefusedByName) {
  ExpectError(R"("previous_response_id":"resp_1")", "previous_response_id", "not kept");
  ExpectError(R"("conversation":"conv_1")", "conversation", "not kept");
  ExpectError(R"("store":true)", "store", "not kept");
  ExpectError(R"("background":true)", "background", "not kept");
  ExpectError(R"("prompt":{"id":"p"})", "prompt", "not kept");
  EXPECT_EQ(ErrorOf(R"("input":[{"type":"item_reference","id":"x"}])").param, "input");
}

TEST(ResponsesRequestTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  ExpectError(R"("tools":[{"type":"web_search"}])", "tools", "web_search");
  ExpectError(R"("tools":[{"type":"function"}])", "tools[0].name", "missing");
  ExpectError(R"("tools":{})", "tools", "a list");
  ExpectError(R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"mcp"})",
              "tool_choice", "mcp");
  ExpectError(R"("include":["message.output_text.logprobs"])", "include", "logprobs");
  ExpectError(R"("top_logprobs":2)", "top_logprobs", "chat/completions");
  ExpectError(R"("logprobs":true)", "logprobs", "chat/completions");
  ExpectError(R"("n":2)", "n", "one answer");
  ExpectError(R"("return_token_ids":true)", "return_token_ids", "chat/completions");
  ExpectError(R"("context_management":[{"type":"compaction"}])", "context_management", "inputs");
  ExpectError(R"("moderation":{"model":"m"})", "moderation", "judged");
  ExpectError(R"("text":{"format":{"type":"xml"}})", "text.format", "xml");
}

TEST(ResponsesRequestTest, WhatAResponseRepeatsIsBounded) {
  const std::string mebibyte(1 << 20, 'x');
  EXPECT_THAT(ErrorOf(R"("input":"hi","instructions":")" + mebibyte + '"').message,
              HasSubstr("at most 1048576"));
  EXPECT_TRUE(Parse(R"({"input":")" + mebibyte + R"("})").ok());
}

TEST(ResponsesRequestTest, WrongFieldsAreNamed) {
  ExpectError(R"("max_output_tokens":"x")", "max_output_tokens", "a string");
  ExpectError(R"("temperature":"hot")", "temperature", "a string");
  ExpectError(R"("metadata":{"a":1})", "metadata.a", "a number");
  ExpectError(R"("metadata":[1])", "metadata", "an array");
  ExpectError(R"("instructions":[1])", "instructions", "an array");
  ExpectError(R"("reasoning":"low")", "reasoning", "a string");
  const std::string key(65, 'k');
  ExpectError(R"("metadata":{")" + key + R"(":"v"})", "metadata", "65");
  EXPECT_EQ(ErrorOf("").param, "input");
  EXPECT_EQ(ErrorOf(R"("input":[])").param, "input");
  EXPECT_EQ(ErrorOf(R"("input":7)").param, "input");
  EXPECT_EQ(ErrorOf(R"("input":[7])").param, "input[0]");
  EXPECT_EQ(ErrorOf(R"("input":[{"content":"x"}])").param, "input[0].role");
  EXPECT_EQ(ErrorOf(R"("input":[{"role":"user"}])").param, "input[0].content");
  EXPECT_EQ(ErrorOf(R"("input":[{"role":"king","content":"x"}])").param, "input[0]");
  EXPECT_EQ(ErrorOf(R"("input":[{"type":"function_call","name":"f"}])").param, "input[0].call_id");
  const ApiError image = ErrorOf(
      R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}])");
  EXPECT_EQ(image.http_status, 400);
  EXPECT_THAT(image.message, HasSubstr(R"(input[0].content[0].type="input_image")"));
  const ApiError shell = ErrorOf(R"("input":[{"type":"local_shell_call"}])");
  EXPECT_THAT(shell.message, HasSubstr("local_shell_call"));
}

}  // namespace
}  // namespace tandem::openai::responses_request_test
