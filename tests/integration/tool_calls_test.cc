// Chats over HTTP whose model is made to write calls of tools and reasoning: its tokenizer has such
// texts as tokens, and the requests allow no others.

#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_cluster_fixture.h"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"

namespace tandem::tool_calls_test {
namespace {

using Json = nlohmann::json;

constexpr int kOpen = 2045;     // <tool_call>, a special token
constexpr int kCall = 2046;     // the rest of a call, and END
constexpr int kThought = 2047;  // reasoning with its end, and END

constexpr char kTemplate[] =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls "
    "or [] "
    "%}\n<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}\n{% endfor %}{% if tools "
    "%}"
    "{{ tools | tojson }}\n{% endif %}{% if add_generation_prompt %}assistant: {% if thinking "
    "%}<think>\n"
    "{% endif %}{% endif %}";

// The sample model with these tokens and this template.
std::string MakeModel() {
  namespace fs = std::filesystem;
  const fs::path sample = SampleModel();
  const fs::path model = fs::path(testing::TempDir()) / fmt::format("calling-{}", getpid());
  fs::create_directories(model);
  for (const fs::directory_entry& file : fs::directory_iterator(sample)) {
    fs::copy_file(file, model / file.path().filename(), fs::copy_options::overwrite_existing);
  }
  Json tokenizer = ParseJson(ReadFile(sample / "tokenizer.json"));
  for (Json& token : tokenizer["added_tokens"]) {
    if (token["id"] == kOpen) token["content"] = "<tool_call>";
    if (token["id"] == kCall) {
      token["content"] = R"({"name": "look", "arguments": {"at": "the sky"}}</tool_call>END)";
      token["special"] = false;
    }
    if (token["id"] == kThought) {
      token["content"] = "It is blue.\n</think>\n\nBlue.END";
      token["special"] = false;
    }
  }
  std::ofstream(model / "tokenizer.json") << tokenizer.dump();
  std::ofstream(model / "chat_template.jinja") << kTemplate;
  return model;
}

class ToolCallsTest : public HttpClusterFixture<Json> {
 protected:
  static void SetUpTestSuite() {
    model_ = MakeModel();
    // Relative to the root of the tree, wherever that is.
    Serve({.model = "../../../../../../../../../../.." + model_,
           .prefill = 0,
           .decode = 0,
           .router_flags = {"--reasoning-parser=think"}});
  }
  static void TearDownTestSuite() {
    HttpClusterFixture::TearDownTestSuite();
    std::filesystem::remove_all(model_);
  }

  // A chat that can only write these tokens, the first of them first, and a token once in a row.
  static Json Chat(const std::vector<int>& tokens) {
    Json body = {{"messages", {{{"role", "user"}, {"content", "What colour is the sky?"}}}},
                 {"allowed_token_ids", tokens},
                 {"logit_bias", {{std::to_string(tokens[0]), 50}}},
                 {"temperature", 0},
                 {"max_tokens", 3},
                 {"stop", {"END"}}};
    if (tokens.size() > 1) body["bad_words"] = {"<tool_call><tool_call>"};
    return body;
  }
  static Json WithTools(Json body) {
    body["tools"] = {{{"type", "function"},
                      {"function", {{"name", "look"}, {"parameters", {{"type", "object"}}}}}}};
    return body;
  }

  static Json Choice(const Json& body) { return Post("/v1/chat/completions", body)["choices"][0]; }

  static inline std::string model_;
};

TEST_F(ToolCallsTest, ACallIsInAFieldOfItsOwn) {
  const Json choice = Choice(WithTools(Chat({kOpen, kCall})));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
  const Json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "look");
  EXPECT_EQ(call["function"]["arguments"], R"({"at": "the sky"})");
}

TEST_F(ToolCallsTest, AStreamHasTheCallInItsDeltas) {
  Json body = WithTools(Chat({kOpen, kCall}));
  body["stream"] = true;
  const HttpReply reply = Send("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body,
              testing::HasSubstr(R"("name":"look","arguments":"{\"at\": \"the sky\"}")"));
  EXPECT_THAT(reply.body, testing::HasSubstr(R"("finish_reason":"tool_calls")"));
  EXPECT_THAT(reply.body, testing::Not(testing::HasSubstr("<tool_call>")));
}

TEST_F(ToolCallsTest, MarksAreTextOnlyWhereCallsAreSearchedFor) {
  Json body = Chat({kOpen});
  EXPECT_EQ(Choice(body)["message"]["content"], "") << "a special token";
  const Json choice = Choice(WithTools(body));
  EXPECT_EQ(choice["message"]["content"], "<tool_call><tool_call><tool_call>") << "no call";
  EXPECT_EQ(choice["finish_reason"], "length");
  body = WithTools(body);
  body["tool_choice"] = "none";
  EXPECT_EQ(Choice(body)["message"]["content"], "");
}

TEST_F(ToolCallsTest, ReasoningThatThePromptBeginsIsFound) {
  Json body = Chat({kThought});
  EXPECT_EQ(Choice(body)["message"]["content"], "It is blue.\n</think>\n\nBlue.");
  body["chat_template_kwargs"] = {{"thinking", true}};
  const Json message = Choice(body)["message"];
  EXPECT_EQ(message["content"], "Blue.");
  EXPECT_EQ(message["reasoning_content"], "It is blue.");
  body["include_reasoning"] = false;
  EXPECT_FALSE(Choice(body)["message"].contains("reasoning_content"));
}

// What another API answers to the same chat, with the tool in that API's form.
Json Ask(uint16_t port, std::string_view path, Json body, const Json& tool) {
  if (path == "/v1/responses") {
    body["input"] = body["messages"];
    body.erase("messages");
  }
  if (!tool.is_null()) body["tools"] = Json::array({tool});
  const HttpReply reply = HttpPeer(port).Post(path, body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  return ParseJson(reply.body);
}

TEST_F(ToolCallsTest, AMessageHasTheUseOfAToolAndThinkingInBlocks) {
  const Json used = Ask(port_, "/v1/messages", Chat({kOpen, kCall}),
                        {{"name", "look"}, {"input_schema", {{"type", "object"}}}});
  EXPECT_EQ(used["stop_reason"], "tool_use");
  ASSERT_EQ(used["content"].size(), 1u) << used;
  EXPECT_EQ(used["content"][0]["type"], "tool_use");
  EXPECT_EQ(used["content"][0]["name"], "look");
  EXPECT_EQ(used["content"][0]["input"], Json({{"at", "the sky"}}));
  Json body = Chat({kThought});
  body["chat_template_kwargs"] = {{"thinking", true}};
  const Json thought = Ask(port_, "/v1/messages", body, nullptr);
  ASSERT_EQ(thought["content"].size(), 2u) << thought;
  EXPECT_EQ(thought["content"][0]["thinking"], "It is blue.");
  EXPECT_EQ(thought["content"][1]["text"], "Blue.");
}

TEST_F(ToolCallsTest, AResponseHasTheCallAndReasoningInItems) {
  const Json called =
      Ask(port_, "/v1/responses", Chat({kOpen, kCall}), {{"type", "function"}, {"name", "look"}});
  ASSERT_EQ(called["output"].size(), 1u) << called;
  EXPECT_EQ(called["output"][0]["type"], "function_call");
  EXPECT_EQ(called["output"][0]["arguments"], R"({"at": "the sky"})");
  Json body = Chat({kThought});
  body["chat_template_kwargs"] = {{"thinking", true}};
  const Json thought = Ask(port_, "/v1/responses", body, nullptr);
  ASSERT_EQ(thought["output"].size(), 2u) << thought;
  EXPECT_EQ(thought["output"][0]["content"][0]["text"], "It is blue.");
  EXPECT_EQ(thought["output"][1]["content"][0]["text"], "Blue.");
}

}  // namespace
}  // namespace tandem::tool_calls_test
