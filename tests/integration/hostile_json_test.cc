// Bodies that clients may send over HTTP without harm to others: each that is refused gets a status
// and is told what is wrong and where, and none of them leaves the router larger.

#include <string>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/hostile_http_fixture.h"

namespace tandem::hostile_json_test {
namespace {

using ::testing::HasSubstr;

TEST_F(HostileHttpTest, BrokenJsonIsRefusedWithItsPlace) {
  const struct {
    std::string body;
    const char* says;
  } cases[] = {
      {"", "the body is empty: it must be a JSON object"},
      {"{", "line 1, column 2"},
      {R"({"prompt": "x",})", "line 1, column 16"},
      {"{\"prompt\":\n \"x\"\n \"n\": 1}", "line 3, column 4"},
      {"{'prompt': 'x'}", "line 1, column 2"},
      {R"({"prompt": "x"} {"prompt": "y"})", "line 1, column 17"},
      {R"({"prompt": NaN})", "line 1, column 12"},
      {R"({"prompt": 01})", "line 1, column 13"},
      {"{\"prompt\": \"a\nb\"}", "line 1, column"},
      {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "line 1"},
      {std::string("{\"prompt\": \"a\0b\"}", 17), "line 1, column"},
      {R"({"prompt": "\ud800"})", "line 1, column"},
      {R"({"max_tokens": 1e400, "prompt": "x"})", "too large at line 1, column"},
      {R"([1, 2])", "must be a JSON object; it is an array"},
      {R"("prompt")", "must be a JSON object; it is a string"},
      {"null", "must be a JSON object; it is null"},
  };
  for (const auto& [body, says] : cases) {
    for (const char* path : {kCompletions, kChats, "/tokenize", "/detokenize"}) {
      const Json error = Refusal(path, body);
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(says)) << path << " " << body;
    }
  }
}

TEST_F(HostileHttpTest, BytesThatAreNoUtf8AreRefusedWithTheirPlace) {
  for (const char* bytes :
       {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "a\x80"}) {
    const std::string text = fmt::format("\"{}\"", bytes);
    EXPECT_THAT(Refusal(kCompletions, "{\"prompt\": " + text + "}")["message"].get<std::string>(),
                HasSubstr("line 1, column 1"));
    Refusal(kCompletions, "{\"prompt\": \"x\", " + text + ": 1}");
    Refusal(kChats, "{\"messages\": [{\"role\": \"user\", \"content\": " + text + "}]}");
  }
  const HttpReply reply = HttpPeer(port_).Get("/v1/models/\xff\xfe");
  EXPECT_EQ(reply.status, 404);
  EXPECT_FALSE(ParseJson(reply.body).is_discarded()) << reply.body;
}

TEST_F(HostileHttpTest, FieldsOfTheWrongTypeOrValueAreNamed) {
  const struct {
    const char* field;
    const char* param;
    int status = 400;
  } cases[] = {
      {R"("model": "gpt-7")", "model", 404},
      {R"("model": 7)", "model"},
      {R"("n": 0)", "n"},
      {R"("n": -1)", "n"},
      {R"("n": 1.5)", "n"},
      {R"("n": 99999999999)", "n"},
      {R"("n": true)", "n"},
      {R"("best_of": -2)", "best_of"},
      {R"("presence_penalty": -2.1)", "presence_penalty"},
      {R"("frequency_penalty": -3)", "frequency_penalty"},
      {R"("repetition_penalty": -1)", "repetition_penalty"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("temperature": -0.1)", "temperature"},
      {R"("temperature": "hot")", "temperature"},
      {R"("temperature": [1])", "temperature"},
      {R"("top_p": 1.1)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("min_p": -1)", "min_p"},
      {R"("seed": "one")", "seed"},
      {R"("seed": 18446744073709551616)", "seed"},
      {R"("stop": 5)", "stop"},
      {R"("stop": [5])", "stop[0]"},
      {R"("stop": [""])", "stop"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": [])", "stream_options"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": {"5": "x"})", "logit_bias.5"},
      {R"("max_tokens": {})", "max_tokens"},
      {R"("user": {})", "user"},
      {R"("stop_token_ids": ["a"])", "stop_token_ids[0]"},
  };
  for (const auto& [field, param, status] : cases) {
    SCOPED_TRACE(field);
    const Json completion =
        Refusal(kCompletions, fmt::format("{{\"prompt\": \"x\", {}}}", field), status);
    EXPECT_EQ(completion["param"], param) << completion;
    const Json chat = Refusal(
        kChats,
        fmt::format("{{\"messages\": [{{\"role\": \"user\", \"content\": \"x\"}}], {}}}", field),
        status);
    EXPECT_EQ(chat["param"], param) << chat;
  }
  for (const char* prompt : {"5", "{}", "[[1], \"x\"]", "[1, \"x\"]", "[1.5]", "[[]]", "[]", "\"\"",
                             "[-1]", "[[[1]]]", "true"}) {
    const Json error = Refusal(kCompletions, fmt::format("{{\"prompt\": {}}}", prompt));
    EXPECT_THAT(error["param"].dump(), HasSubstr("prompt")) << prompt << error;
  }
  for (const char* messages : {"5", "[]", "{}", "[5]", "[{}]", "[{\"role\": 5}]", "[[]]",
                               "[{\"role\": \"user\", \"content\": 5}]", "\"x\"",
                               "[{\"role\": \"user\", \"content\": [5]}]"}) {
    const Json error = Refusal(kChats, fmt::format("{{\"messages\": {}}}", messages));
    EXPECT_THAT(error["param"].dump(), HasSubstr("messages")) << messages << error;
  }
}

TEST_F(HostileHttpTest, AFieldThatComesTwiceIsRefused) {
  for (const char* body :
       {R"({"prompt": "x", "prompt": "y"})", R"({"prompt": "x", "n": 1, "n": 2})",
        R"({"prompt": "x", "\u006e": 1, "n": 2})",
        R"({"prompt": "x", "stream_options": {"a": 1, "a": 1}})"}) {
    EXPECT_THAT(Refusal(kCompletions, body)["message"].get<std::string>(), HasSubstr("twice"));
  }
}

TEST_F(HostileHttpTest, OfTwoLimitsOfAChatTheNewerNameCounts) {
  for (const char* limits : {R"("max_tokens": 9, "max_completion_tokens": 3)",
                             R"("max_completion_tokens": 3, "max_tokens": 9)"}) {
    const HttpReply reply = HttpPeer(port_).Post(
        kChats, fmt::format("{{\"messages\": [{{\"role\": \"user\", \"content\": \"x\"}}], "
                            "\"ignore_eos\": true, {}}}",
                            limits));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(ParseJson(reply.body)["usage"]["completion_tokens"], 3);
  }
}

TEST_F(HostileHttpTest, AMillionLevelsAreRefused) {
  constexpr size_t kDeep = 1'000'000;
  const std::string lists(kDeep, '[');
  std::string objects;
  for (size_t i = 0; i < kDeep; ++i) objects += "{\"a\":";
  std::string escaped;  // in a string, which is parsed once more
  for (size_t i = 0; i < kDeep; ++i) escaped += "{\\\"a\\\":";
  const std::string call =
      "{\"max_tokens\": 1, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"type\": "
      "\"function\", "
      "\"function\": {\"name\": \"f\", \"arguments\": \"";
  ExpectFlat(3, 8 << 10, [&] {
    for (const std::string& body :
         {lists, objects, "{\"prompt\": " + lists + std::string(kDeep, ']') + "}",
          "{\"stop\": " + objects}) {
      EXPECT_THAT(Refusal(kCompletions, body)["message"].get<std::string>(), HasSubstr("64 deep"));
    }
    EXPECT_THAT(Refusal(kChats, "{\"messages\": " + lists)["message"].get<std::string>(),
                HasSubstr("64 deep"));
    // The sample model's template does not look at calls, so that they need not be parsed.
    for (const std::string& arguments : {escaped, lists + std::string(kDeep, ']')}) {
      const int status = HttpPeer(port_).Post(kChats, call + arguments + "\"}}]}]}").status;
      EXPECT_TRUE(status == 200 || status == 400) << status;
    }
  });
}

// Small in bytes and large once they are parsed.
TEST_F(HostileHttpTest, MillionsOfEmptyListsAreRefused) {
  std::string lists = "{\"prompt\": [";
  while (lists.size() < size_t{12} << 20) lists += "[],";
  lists += "[]]}";
  std::string messages = "{\"messages\": [";
  while (messages.size() < size_t{12} << 20) messages += "{},";
  messages += "{}]}";
  ExpectFlat(3, 8 << 10, [&] {
    EXPECT_THAT(Refusal(kCompletions, lists)["message"].get<std::string>(), HasSubstr("100000"));
    EXPECT_THAT(Refusal(kChats, messages)["message"].get<std::string>(), HasSubstr("100000"));
  });
}

}  // namespace
}  // namespace tandem::hostile_json_test
