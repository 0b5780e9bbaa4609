// OpenAI's API of a real router and real workers: what its paths answer, and how they refuse.

#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/openai_fixture.h"

namespace tandem::openai_integration_test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(OpenAiTest, ATokenIsAnEventAndUsageTheLast) {
  const std::vector<Json> events =
      Stream("/v1/completions", {{"prompt", "It was a fine"},
                                 {"max_tokens", 12},
                                 {"ignore_eos", true},
                                 {"temperature", 0},
                                 {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(events.size(), 13u);
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 12);
  EXPECT_FALSE(events.front().contains("usage"));
}

TEST_F(OpenAiTest, SeveralPromptsOfTokensAreAnsweredInOrder) {
  const Json one =
      Post("/v1/completions", {{"prompt", {500, 501, 502}}, {"max_tokens", 5}, {"temperature", 0}});
  const Json two =
      Post("/v1/completions", {{"prompt", {700, 701}}, {"max_tokens", 5}, {"temperature", 0}});
  const Json both =
      Post("/v1/completions",
           {{"prompt", {{500, 501, 502}, {700, 701}}}, {"max_tokens", 5}, {"temperature", 0}});
  ASSERT_EQ(both["choices"].size(), 2u);
  EXPECT_EQ(both["choices"][0]["text"], one["choices"][0]["text"]);
  EXPECT_EQ(both["choices"][1]["text"], two["choices"][0]["text"]);
  EXPECT_EQ(both["usage"]["prompt_tokens"], 5);
}

TEST_F(OpenAiTest, AnEchoHasTheLogprobsOfThePrompt) {
  const std::string prompt = "It was a fine morning";
  const Json tokens = Post("/tokenize", {{"prompt", prompt}})["tokens"];
  for (const int max_tokens : {0, 1}) {
    const Json json = Post("/v1/completions", {{"prompt", {tokens}},
                                               {"max_tokens", max_tokens},
                                               {"echo", true},
                                               {"logprobs", 1},
                                               {"temperature", 0}});
    const Json& choice = json["choices"][0];
    EXPECT_THAT(choice["text"].get<std::string>(), testing::StartsWith(prompt));
    const Json& logprobs = choice["logprobs"];
    ASSERT_EQ(logprobs["token_logprobs"].size(), tokens.size() + max_tokens);
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    for (size_t i = 1; i < tokens.size(); ++i) {
      EXPECT_LT(logprobs["token_logprobs"][i].get<double>(), 0);
      EXPECT_TRUE(logprobs["top_logprobs"][i].contains(logprobs["tokens"][i].get<std::string>()));
    }
    EXPECT_EQ(json["usage"]["completion_tokens"], max_tokens);
  }
}

TEST_F(OpenAiTest, AChatIsTheCompletionOfItsRenderedMessages) {
  const Json messages = {{{"role", "user"}, {"content", "It was a fine morning"}}};
  const Json tokens = Post("/tokenize", {{"messages", messages}})["tokens"];
  ASSERT_FALSE(tokens.empty());
  const Json completion =
      Post("/v1/completions", {{"prompt", tokens}, {"max_tokens", 20}, {"seed", 3}});
  const Json fields = {{"messages", messages}, {"max_completion_tokens", 20}, {"seed", 3}};
  const Json chat = Post("/v1/chat/completions", fields);
  EXPECT_EQ(chat["choices"][0]["message"]["content"], completion["choices"][0]["text"]);
  EXPECT_EQ(chat["usage"]["prompt_tokens"], tokens.size());
  std::string text;
  const std::vector<Json> events = Stream("/v1/chat/completions", fields);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  for (const Json& event : events) text += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(completion["choices"][0]["text"], text);
}

TEST_F(OpenAiTest, ModelsAreListedByName) {
  HttpPeer http(port_);
  const Json list = ParseJson(http.Get("/v1/models").body);
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "sample");
  EXPECT_EQ(list["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(list["data"][0]["prompts"], Json::array({"token_ids", "text", "messages"}));
  EXPECT_EQ(http.Get("/v1/models/sample").status, 200);
  EXPECT_EQ(http.Get("/v1/models/other").status, 404);
  EXPECT_EQ(http.Get("/load").status, 200);
}

TEST_F(OpenAiTest, TheRootNamesWhatIsServed) {
  const HttpReply reply = HttpPeer(port_).Get("/");
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, HasSubstr("POST /v1/chat/completions\n"));
  EXPECT_THAT(reply.body, HasSubstr("GET  /metrics\n"));
  EXPECT_THAT(reply.body, HasSubstr("DELETE /v1/responses/...\n"));
}

TEST(WithoutAPage, TheRootIsNotServed) {
  const uint16_t port = FreePort();
  TestCluster cluster({.router_flags = {"--http-port=" + std::to_string(port), "--no-page"}});
  EXPECT_EQ(HttpGet(port, "/").status, 404);
  EXPECT_EQ(HttpGet(port, "/app.js").status, 404);
  EXPECT_EQ(HttpGet(port, "/status").status, 404);
  EXPECT_EQ(HttpGet(port, "/status.json").status, 200) << "it is for programs as well";
  EXPECT_EQ(HttpGet(port, "/health").status, 200);
}

TEST_F(OpenAiTest, TokensBecomeTheTextAgain) {
  const std::string text = "“Ünïted” 😀 it was";
  const Json tokens = Post(
      "/tokenize", {{"prompt", text}, {"add_special_tokens", false}, {"return_token_strs", true}});
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["token_strs"].size(), tokens["tokens"].size());
  EXPECT_EQ(Post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], text);
  const Json info = ParseJson(HttpPeer(port_).Get("/tokenizer_info").body);
  EXPECT_EQ(info["eos_token"], "<|end_of_text|>");
}

TEST_F(OpenAiTest, ErrorsHaveTheirStatusAndField) {
  const auto expect = [](const Json& body, int status, const std::string& param,
                         const std::string& says) {
    const Json error = Post("/v1/completions", body, status)["error"];
    EXPECT_EQ(error["param"], param.empty() ? Json(nullptr) : Json(param)) << error;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(says));
  };
  expect({{"prompt", "x"}, {"model", "gpt-7"}}, 404, "model", "gpt-7");
  expect({{"prompt", "x"}, {"temperature", -1}}, 400, "temperature", "-1");
  expect({{"prompt", "x"}, {"temperature", "hot"}}, 400, "temperature", "a string");
  expect({{"prompt", "x"}, {"max_tokens", 100000}}, 400, "max_tokens", "100000");
  expect({{"prompt", {1, 2, 99999}}}, 400, "prompt", "prompt[2]");
  expect({{"prompt", ""}}, 400, "prompt", "prompt is empty");
  expect({{"max_tokens", 1}}, 400, "prompt", "missing");
  const HttpReply reply = HttpPeer(port_).Post("/v1/completions", "{\"prompt\": \"x\", }");
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("line 1, column"));
  EXPECT_EQ(HttpPeer(port_).Get("/v1/completions").status, 405);
}

TEST_F(OpenAiTest, ErrorsOfChatsNameTheFieldsOfChats) {
  const auto messages = [](const std::string& content) {
    const Json message = {{"role", "user"}, {"content", content}};
    return Json::array({message});
  };
  const auto expect = [&](const Json& fields, const std::string& param, const std::string& says) {
    Json body = {{"messages", messages("It was a fine morning")}};
    body.update(fields);
    for (const bool streamed : {false, true}) {
      body["stream"] = streamed;
      const Json error = Post("/v1/chat/completions", body, 400)["error"];
      EXPECT_EQ(error["param"], param) << error;
      EXPECT_THAT(error["message"].get<std::string>(), StartsWith(says));
    }
  };
  expect({{"max_tokens", 0}}, "max_tokens", "max_tokens=0 ");
  expect({{"max_tokens", 100000}}, "max_tokens", "max_tokens=100000 ");
  expect({{"max_completion_tokens", 0}}, "max_completion_tokens", "max_completion_tokens=0 ");
  expect({{"max_completion_tokens", 100000}}, "max_completion_tokens",
         "max_completion_tokens=100000 ");
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word ";
  expect({{"messages", messages(words)}}, "messages", "prompt has ");
}

TEST_F(OpenAiTest, MoreChoicesThanMayEverBeInFlightAreNotWorthARetry) {
  const Json prompts(std::vector<Json>(512, Json{1}));
  const Json fields = {{"prompt", prompts}, {"max_tokens", 1}, {"n", 64}};
  const Json error = Post("/v1/completions", fields, 400)["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("32768 choices"));
}

TEST_F(OpenAiTest, TheRequestIdOfTheBodyNamesTheAnswer) {
  HttpPeer http(port_);
  const HttpReply named =
      http.Post("/v1/completions", R"({"prompt":[1],"max_tokens":1,"request_id":"mine"})");
  EXPECT_EQ(named.status, 200);
  EXPECT_EQ(named.Header("x-request-id"), "mine");
  EXPECT_EQ(ParseJson(named.body)["id"], "cmpl-mine");
  const HttpReply refused = http.Post("/v1/completions", R"({"request_id":"mine"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.Header("x-request-id"), "mine");
}

TEST_F(OpenAiTest, AClientThatLeavesFreesItsBlocks) {
  HttpPeer http(port_);
  const std::string body =
      R"({"prompt":"It was","max_tokens":1900,"ignore_eos":true,"stream":true})";
  ASSERT_TRUE(http.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body));
  EXPECT_THAT(http.ReadThrough("\"text\""), HasSubstr("200 OK"));
  http.Close();
  cluster_->WaitUntilIdle();
}

}  // namespace
}  // namespace tandem::openai_integration_test
