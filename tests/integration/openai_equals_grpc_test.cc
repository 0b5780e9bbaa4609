// OpenAI's API of a real router and real workers: its answers, whole and streamed, must be those of
// gRPC.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/openai_fixture.h"

namespace tandem::openai_equals_grpc_test {
namespace {

using Json = nlohmann::json;

// A completion over both APIs.
struct Question {
  v1::GenerateRequest grpc;
  Json http;
};

// `multibyte`: tokens of characters beyond ASCII, which the sample model does not write by itself.
Question RandomQuestion(std::mt19937& random, const std::vector<int32_t>& multibyte) {
  const auto pick = [&random](size_t limit) { return random() % limit; };
  const std::vector<std::string> prompts = {
      "It was a fine morning", "Emma Woodhouse, handsome, clever and rich",
      "— “naïve” señor, Ünïted 😀 cafés", "“My dear Mr. Bennet,” said his lady", "東京の空は"};
  const std::vector<std::string> stops = {"the", ", and", "er ", "é", "“",
                                          ". ",  "e",     "an",  "—", "京"};
  Question question;
  const std::string& prompt = prompts[pick(prompts.size())];
  const int max_tokens = 1 + static_cast<int>(pick(20));
  question.grpc = TextRequest(prompt, v1::ROUTE_AUTO, max_tokens);
  question.http = {{"prompt", prompt}, {"max_tokens", max_tokens}, {"return_token_ids", true}};
  const float temperature = pick(3) == 0 ? 0.0F : 0.5F + 0.5F * static_cast<float>(pick(5));
  question.grpc.mutable_sampling()->set_temperature(temperature);
  question.http["temperature"] = temperature;
  const uint64_t seed = random();
  question.grpc.mutable_sampling()->set_seed(seed);
  question.http["seed"] = seed;
  const bool ignore_eos = pick(2) == 0;
  question.grpc.set_ignore_eos(ignore_eos);
  question.http["ignore_eos"] = ignore_eos;
  question.grpc.set_n(static_cast<int>(1 + pick(3)));
  question.http["n"] = question.grpc.n();
  question.grpc.mutable_sampling()->set_logprobs(static_cast<int>(pick(4)));
  question.http["logprobs"] = question.grpc.sampling().logprobs();
  const size_t num_stops = pick(3);
  for (size_t i = 0; i < num_stops; ++i) {
    const std::string& stop = stops[pick(stops.size())];
    question.grpc.add_stop(stop);
    question.http["stop"].push_back(stop);
  }
  if (pick(4) == 0) {
    // Whole characters and parts of them, in any order.
    question.grpc.mutable_sampling()->mutable_allowed_token_ids()->Add(multibyte.begin(),
                                                                       multibyte.end());
    question.http["allowed_token_ids"] = multibyte;
  }
  if (pick(4) == 0) {
    question.grpc.set_include_stop(true);
    question.http["include_stop_str_in_output"] = true;
  }
  return question;
}

void ExpectSame(const Generation::Choice& grpc, const Json& http) {
  EXPECT_EQ(http["text"], grpc.text);
  EXPECT_EQ(http["token_ids"], Json(grpc.token_ids));
  const bool length = grpc.finish.reason() == v1::FINISH_REASON_LENGTH;
  EXPECT_EQ(http["finish_reason"], length ? "length" : "stop");
  if (!grpc.finish.stop().empty()) {
    EXPECT_EQ(http["stop_reason"], grpc.finish.stop());
  }
  const Json& logprobs = http["logprobs"];
  ASSERT_EQ(logprobs["token_logprobs"].size(), grpc.logprobs.size());
  for (size_t i = 0; i < grpc.logprobs.size(); ++i) {
    EXPECT_EQ(logprobs["token_logprobs"][i].get<float>(), grpc.logprobs[i].sampled().logprob());
    const std::string token = logprobs["tokens"][i];
    EXPECT_TRUE(logprobs["top_logprobs"][i].contains(token)) << token;
  }
}

// The choices of a stream, put together.
std::vector<Json> Together(const std::vector<Json>& events, int n) {
  std::vector<Json> choices(static_cast<size_t>(n));
  for (const Json& event : events) {
    EXPECT_EQ(event["id"], events[0]["id"]);
    EXPECT_EQ(event["created"], events[0]["created"]);
    for (const Json& part : event["choices"]) {
      Json& choice = choices[part["index"].get<size_t>()];
      if (choice.is_null()) {
        choice = part;
        continue;
      }
      EXPECT_TRUE(choice["finish_reason"].is_null()) << "a part after the end";
      choice["text"] = choice["text"].get<std::string>() + part["text"].get<std::string>();
      for (const Json& id : part["token_ids"]) choice["token_ids"].push_back(id);
      for (const auto& [name, list] : part["logprobs"].items()) {
        for (const Json& one : list) choice["logprobs"][name].push_back(one);
      }
      choice["finish_reason"] = part["finish_reason"];
      if (part.contains("stop_reason")) choice["stop_reason"] = part["stop_reason"];
    }
  }
  return choices;
}

// What 300 requests must have shown for their comparison to say something.
struct Seen {
  int choices = 0;
  int several = 0;    // requests with more than one choice
  int logprobs = 0;   // requests
  int stopped = 0;    // choices that a stop string ended
  int multibyte = 0;  // choices with a character beyond ASCII

  void Note(const Question& question, const Generation& generation) {
    several += question.grpc.n() > 1 ? 1 : 0;
    logprobs += question.grpc.sampling().logprobs() > 0 ? 1 : 0;
    for (const Generation::Choice& choice : generation.choices) {
      ++choices;
      stopped += choice.finish.stop().empty() ? 0 : 1;
      const bool is_ascii = std::all_of(choice.text.begin(), choice.text.end(),
                                        [](char byte) { return static_cast<uint8_t>(byte) < 128; });
      multibyte += is_ascii ? 0 : 1;
    }
  }
};

// One question over gRPC, over HTTP at once, and as a stream.
class Comparison {
 public:
  Comparison(Client& client, uint16_t port) : client_(client), http_(port) {}

  void Ask(const Question& question, Seen& seen) {
    const Outcome grpc = tandem::Ask(client_, question.grpc);
    ASSERT_TRUE(grpc.status.ok()) << grpc.status;
    const HttpReply reply = http_.Post("/v1/completions", question.http.dump());
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json whole = ParseJson(reply.body);
    const int n = question.grpc.n();
    const std::vector<Json> streamed =
        Together(OpenAiTest::Stream("/v1/completions", question.http), n);
    ASSERT_EQ(whole["choices"].size(), static_cast<size_t>(n));
    for (int choice = 0; choice < n; ++choice) {
      ExpectSame(grpc.generation.choices[choice], whole["choices"][choice]);
      ExpectSame(grpc.generation.choices[choice], streamed[choice]);
      EXPECT_EQ(streamed[choice]["logprobs"], whole["choices"][choice]["logprobs"]);
    }
    const v1::Usage& usage = grpc.generation.summary.usage();
    EXPECT_EQ(whole["usage"]["prompt_tokens"], usage.prompt_tokens());
    EXPECT_EQ(whole["usage"]["completion_tokens"], usage.completion_tokens());
    seen.Note(question, grpc.generation);
  }

 private:
  Client& client_;
  HttpPeer http_;
};

TEST_F(OpenAiTest, AnswersAreThoseOfGrpcWholeAndStreamed) {
  std::mt19937 random(20261124);
  const std::vector<int32_t> multibyte = Post(
      "/tokenize", {{"prompt", "“ïéñü”’😀—東京の空は"}, {"add_special_tokens", false}})["tokens"];
  Comparison comparison(client(), port_);
  Seen seen;
  for (int i = 0; i < 300; ++i) {
    const Question question = RandomQuestion(random, multibyte);
    SCOPED_TRACE(question.http.dump());
    comparison.Ask(question, seen);
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.several, 100);
  EXPECT_GT(seen.logprobs, 100);
  EXPECT_GT(seen.stopped, 50);
  EXPECT_GT(seen.multibyte, 50);
  RecordProperty("choices", seen.choices);
}

// The text that a chat's whole answer has, and the texts of its parts.
TEST_F(OpenAiTest, ChatsAreTheSameWholeAndStreamedAndThatOfTheirTokensOverGrpc) {
  std::mt19937 random(20261125);
  const std::vector<std::string> texts = {"It was a fine morning", "“naïve” señor 😀", "東京の空は"};
  for (int i = 0; i < 40; ++i) {
    const Json messages = {{{"role", "user"}, {"content", texts[random() % texts.size()]}}};
    const int n = 1 + static_cast<int>(random() % 3);
    const int max_tokens = 1 + static_cast<int>(random() % 24);
    const Json fields = {{"messages", messages},      {"n", n},
                         {"max_tokens", max_tokens},  {"seed", i},
                         {"temperature", 1.5},        {"logprobs", i % 2 == 0},
                         {"stop", {"the", "é", ". "}}};
    SCOPED_TRACE(fields.dump());
    v1::GenerateRequest request = TextRequest("", v1::ROUTE_AUTO, max_tokens);
    const Json tokens = Post("/tokenize", {{"messages", messages}})["tokens"];
    for (const Json& id : tokens) request.mutable_token_ids()->add_ids(id.get<int32_t>());
    request.set_n(n);
    for (const char* stop : {"the", "é", ". "}) request.add_stop(stop);
    request.mutable_sampling()->set_seed(i);
    request.mutable_sampling()->set_temperature(1.5);
    const Outcome grpc = Ask(client(), request);
    ASSERT_TRUE(grpc.status.ok()) << grpc.status;
    const Json whole = Post("/v1/chat/completions", fields);
    std::vector<std::string> streamed(static_cast<size_t>(n));
    std::vector<Json> logprobs(static_cast<size_t>(n), Json::array());
    for (const Json& event : Stream("/v1/chat/completions", fields)) {
      for (const Json& part : event["choices"]) {
        const auto index = part["index"].get<size_t>();
        const Json& delta = part["delta"];
        if (delta.contains("content")) streamed[index] += delta["content"].get<std::string>();
        if (part["logprobs"].is_null()) continue;
        for (const Json& one : part["logprobs"]["content"]) logprobs[index].push_back(one);
      }
    }
    for (int choice = 0; choice < n; ++choice) {
      const Json& message = whole["choices"][choice]["message"];
      EXPECT_EQ(message["content"], grpc.generation.choices[choice].text);
      EXPECT_EQ(streamed[choice], grpc.generation.choices[choice].text);
      if (i % 2 == 0) {
        EXPECT_EQ(whole["choices"][choice]["logprobs"]["content"], logprobs[choice]);
      }
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tandem::openai_equals_grpc_test
