// OpenAI's Responses API and Anthropic's Messages API of a real router and real workers: what they
// say must be what chat completions say.

#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_cluster_fixture.h"
#include "tests/support/sse_events.h"

namespace tandem::turns_integration_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class TurnsTest : public HttpClusterFixture<Json> {
 protected:
  static std::vector<SseEventParts> Stream(std::string_view path, Json body) {
    body["stream"] = true;
    const HttpReply reply = Send(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return SseEventsIn(reply.body);
  }
  // What chat completions answer to the same.
  static Json Chat(const Json& messages, int max_tokens) {
    return Post("/v1/chat/completions", {{"messages", messages},
                                         {"max_completion_tokens", max_tokens},
                                         {"seed", 3},
                                         {"temperature", 0.8}});
  }
};

const Json kMessages = {{{"role", "user"}, {"content", "It was a fine morning"}}};

Json ResponsesBody() {
  return {{"input", "It was a fine morning"},
          {"max_output_tokens", 20},
          {"seed", 3},
          {"temperature", 0.8}};
}

Json MessagesBody() {
  return {{"messages", kMessages}, {"max_tokens", 20}, {"seed", 3}, {"temperature", 0.8}};
}

TEST_F(TurnsTest, AResponseIsTheChatOfItsInput) {
  const Json chat = Chat(kMessages, 20);
  const Json response = Post("/v1/responses", ResponsesBody());
  ASSERT_EQ(response["output"].size(), 1u) << response;
  EXPECT_EQ(response["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_EQ(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
  EXPECT_EQ(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
  const bool cut = chat["choices"][0]["finish_reason"] == "length";
  EXPECT_EQ(response["status"], cut ? "incomplete" : "completed");
}

TEST_F(TurnsTest, AStreamedResponseIsTheWholeOne) {
  const Json whole = Post("/v1/responses", ResponsesBody());
  const std::vector<SseEventParts> events = Stream("/v1/responses", ResponsesBody());
  std::string text;
  int64_t number = 0;
  for (const SseEventParts& event : events) {
    EXPECT_EQ(event.data["sequence_number"], number++);
    if (event.name == "response.output_text.delta") text += event.data["delta"];
  }
  EXPECT_EQ(events.front().name, "response.created");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], text);
  const Json& last = events.back().data["response"];
  EXPECT_EQ(last["status"], whole["status"]);
  EXPECT_EQ(last["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

TEST_F(TurnsTest, AMessageIsTheChatOfItsMessages) {
  const Json chat = Chat(kMessages, 20);
  const Json message = Post("/v1/messages", MessagesBody());
  ASSERT_EQ(message["content"].size(), 1u) << message;
  EXPECT_EQ(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  const Json& usage = message["usage"];
  EXPECT_EQ(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>(),
            chat["usage"]["prompt_tokens"]);
  EXPECT_EQ(usage["output_tokens"], chat["usage"]["completion_tokens"]);
}

TEST_F(TurnsTest, AStreamedMessageIsTheWholeOne) {
  const Json whole = Post("/v1/messages", MessagesBody());
  const std::vector<SseEventParts> events = Stream("/v1/messages", MessagesBody());
  ASSERT_GT(events.size(), 5u);
  EXPECT_EQ(events.front().name, "message_start");
  EXPECT_EQ(events.back().name, "message_stop");
  std::string text;
  for (const SseEventParts& event : events) {
    if (event.name == "content_block_delta") text += event.data["delta"]["text"];
  }
  EXPECT_EQ(whole["content"][0]["text"], text);
  const Json& delta = events[events.size() - 2].data;
  EXPECT_EQ(delta["type"], "message_delta");
  EXPECT_EQ(delta["delta"]["stop_reason"], whole["stop_reason"]);
  EXPECT_EQ(delta["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

TEST_F(TurnsTest, TokensAreCountedAsTheyAreTaken) {
  const Json tokens = Post("/tokenize", {{"messages", kMessages}});
  EXPECT_EQ(Post("/v1/messages/count_tokens", {{"messages", kMessages}})["input_tokens"],
            tokens["count"]);
  EXPECT_EQ(
      Post("/v1/responses/input_tokens", {{"input", "It was a fine morning"}})["input_tokens"],
      tokens["count"]);
}

TEST_F(TurnsTest, AStopSequenceIsNamed) {
  Json body = MessagesBody();
  body["max_tokens"] = 200;
  body["temperature"] = 0;
  const std::string text = Post("/v1/messages", body)["content"][0]["text"];
  const std::string stop = text.substr(text.size() / 2, 3);
  body["stop_sequences"] = {stop};
  const Json stopped = Post("/v1/messages", body);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], stop);
  EXPECT_EQ(stopped["content"][0]["text"], text.substr(0, text.find(stop)));
}

TEST_F(TurnsTest, AMessageOfTheAssistantIsContinued) {
  Json messages = kMessages;
  messages.push_back({{"role", "assistant"}, {"content", "The sun"}});
  Json body = MessagesBody();
  body["messages"] = messages;
  const Json chat = Post("/v1/chat/completions", {{"messages", messages},
                                                  {"continue_final_message", true},
                                                  {"add_generation_prompt", false},
                                                  {"max_completion_tokens", 20},
                                                  {"seed", 3},
                                                  {"temperature", 0.8}});
  EXPECT_EQ(Post("/v1/messages", body)["content"][0]["text"],
            chat["choices"][0]["message"]["content"]);
}

TEST_F(TurnsTest, ErrorsHaveTheFormOfTheirApi) {
  Json body = ResponsesBody();
  body["max_output_tokens"] = 100000;
  const Json too_long = Post("/v1/responses", body, 400)["error"];
  EXPECT_EQ(too_long["param"], "max_output_tokens");
  EXPECT_THAT(too_long["message"].get<std::string>(), testing::StartsWith("max_output_tokens"));
  body["model"] = "gpt-7";
  EXPECT_EQ(Post("/v1/responses", body, 404)["error"]["code"], "model_not_found");
  EXPECT_THAT(Post("/v1/responses", {{"input", {}}}, 400)["error"]["message"].get<std::string>(),
              HasSubstr("input"));
  const HttpReply gone = HttpPeer(port_).Get("/v1/responses/resp_1");
  EXPECT_EQ(gone.status, 404);
  EXPECT_THAT(gone.body, HasSubstr("not kept here"));

  const Json missing = Post("/v1/messages", {{"messages", kMessages}}, 400);
  EXPECT_EQ(missing["type"], "error");
  EXPECT_EQ(missing["error"]["type"], "invalid_request_error");
  EXPECT_EQ(missing["error"]["message"], "max_tokens is missing");
  Json message = MessagesBody();
  message["model"] = "claude";
  EXPECT_EQ(Post("/v1/messages", message, 404)["error"]["type"], "not_found_error");
  const HttpReply broken = HttpPeer(port_).Post("/v1/messages", "{\"messages\": [}");
  EXPECT_EQ(broken.status, 400);
  EXPECT_THAT(broken.body, HasSubstr("line 1, column"));
  EXPECT_FALSE(broken.Header("request-id").empty());
  EXPECT_EQ(HttpPeer(port_).Get("/v1/messages").status, 405);
}

TEST_F(TurnsTest, RequestsHaveTheIdOfTheirClient) {
  Json body = MessagesBody();
  body["request_id"] = "mine";
  const HttpReply message = Send("/v1/messages", body);
  EXPECT_EQ(message.Header("x-request-id"), "mine");
  EXPECT_EQ(message.Header("request-id"), "mine");
  EXPECT_EQ(ParseOrderedJson(message.body).value["id"], "msg_mine");
  body = ResponsesBody();
  body["request_id"] = "mine";
  const HttpReply response = Send("/v1/responses", body);
  EXPECT_EQ(response.Header("x-request-id"), "mine");
  EXPECT_EQ(ParseOrderedJson(response.body).value["id"], "resp_mine");
}

TEST_F(TurnsTest, AClientThatLeavesFreesItsBlocks) {
  for (const auto& [path, field] : {std::pair("/v1/responses", R"("input":"It was",)"),
                                    std::pair("/v1/messages", R"("messages":[{"role":"user",)"
                                                              R"("content":"It was"}],)")}) {
    HttpPeer http(port_);
    const std::string body =
        "{" + std::string(field) + R"("max_tokens":1900,"ignore_eos":true,"stream":true})";
    ASSERT_TRUE(http.Send("POST " + std::string(path) + " HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));
    EXPECT_THAT(http.ReadThrough("delta"), HasSubstr("200 OK"));
    http.Close();
    cluster_->WaitUntilIdle();
  }
}

}  // namespace
}  // namespace tandem::turns_integration_test
