#include "server/openai/completion_request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/api_error.h"

namespace tandem::openai::completion_request_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<CompletionRequest> ParseBody(std::string_view body) {
  absl::StatusOr<Json> json = ParseJsonBody(body);
  EXPECT_TRUE(json.ok()) << json.status();
  return ParseCompletion(*json);
}

// The error of that body, which must name `param`.
std::string FieldError(std::string_view body, const std::string& param) {
  const absl::Status status = ParseBody(body).status();
  EXPECT_FALSE(status.ok()) << body;
  EXPECT_EQ(ToApiError(status).http_status, 400) << status;
  EXPECT_EQ(ToApiError(status).param, param) << status;
  return std::string(status.message());
}

TEST(CompletionRequestTest, APromptIsOneOfFourForms) {
  const auto text = ParseBody(R"({"prompt":"hi"})");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->prompts[0].text(), "hi");
  EXPECT_EQ(text->prompts[0].max_tokens(), 16);
  EXPECT_FALSE(text->needs_token_ids());
  const auto texts = ParseBody(R"({"prompt":["a","b"],"request_id":"r"})");
  ASSERT_TRUE(texts.ok()) << texts.status();
  ASSERT_EQ(texts->prompts.size(), 2u);
  EXPECT_EQ(texts->prompts[1].text(), "b");
  EXPECT_EQ(texts->prompts[1].request_id(), "r-1");
  const auto ids = ParseBody(R"({"prompt":[1,2,3]})");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(ids->prompts[0].token_ids().ids(), ElementsAre(1, 2, 3));
  const auto lists = ParseBody(R"({"prompt":[[1],[2,3]]})");
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_THAT(lists->prompts[1].token_ids().ids(), ElementsAre(2, 3));
}

TEST(CompletionRequestTest, FieldsAreJudgedBeforeTheyAreCopiedForEachPrompt) {
  const auto json = ParseJsonBody(R"({"prompt":["a","b"]})");
  ASSERT_TRUE(json.ok()) << json.status();
  int times = 0;
  const auto parsed = ParseCompletion(*json, [&times](v1::GenerateRequest& fields) {
    ++times;
    EXPECT_FALSE(fields.has_text());
    fields.set_request_id(std::string(128, 'r'));
    return absl::OkStatus();
  });
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(times, 1);
  EXPECT_EQ(parsed->prompts[1].request_id(), std::string(120, 'r') + "-1")
      << "a name has at most 128 characters";
  const auto refused =
      ParseCompletion(*json, [](v1::GenerateRequest&) { return InvalidArgument("no"); });
  EXPECT_EQ(refused.status().message(), "no");
}

TEST(CompletionRequestTest, OtherPromptsAreRefused) {
  FieldError("{}", "prompt");
  FieldError(R"({"prompt":[]})", "prompt");
  FieldError(R"({"prompt":5})", "prompt");
  FieldError(R"({"prompt":{}})", "prompt");
  FieldError(R"({"prompt":["a",[1]]})", "prompt");
  FieldError(R"({"prompt":[[1],"a"]})", "prompt");
  FieldError(R"({"prompt":[true]})", "prompt");
  EXPECT_THAT(FieldError(R"({"prompt":[1,"a"]})", "prompt"), HasSubstr("prompt[1]"));
  EXPECT_THAT(FieldError(R"({"prompt":[[1],[2,3e9]]})", "prompt"), HasSubstr("prompt[1][1]"));
}

TEST(CompletionRequestTest, FieldsReachTheRouter) {
  const auto parsed = ParseBody(R"({
    "model":"m","prompt":"p","max_tokens":9,"temperature":0.5,"top_p":0.25,"top_k":-1,"min_p":0.125,
    "repetition_penalty":1.5,"presence_penalty":0.5,"frequency_penalty":-0.5,"seed":-1,"n":2,
    "best_of":3,"stop":["x","y"],"stop_token_ids":[7],"ignore_eos":true,"min_tokens":2,
    "logit_bias":{"5":1.5},"allowed_token_ids":[1,2],"bad_words":["z"],
    "include_stop_str_in_output":true,"skip_special_tokens":false,"truncate_prompt_tokens":4,
    "user":"u","cache_salt":"s","session_id":"t","priority":3,"route":"disaggregated",
    "ttft_slo_ms":100,"tpot_slo_ms":10})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const v1::GenerateRequest& request = parsed->prompts[0];
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.max_tokens(), 9);
  EXPECT_EQ(request.sampling().temperature(), 0.5);
  EXPECT_EQ(request.sampling().top_k(), 0);
  EXPECT_EQ(request.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(request.sampling().min_tokens(), 2);
  EXPECT_EQ(request.sampling().logit_bias().at(5), 1.5);
  EXPECT_THAT(request.sampling().allowed_token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(request.n(), 2);
  EXPECT_EQ(request.best_of(), 3);
  EXPECT_THAT(request.stop(), ElementsAre("x", "y"));
  EXPECT_THAT(request.stop_token_ids(), ElementsAre(7));
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_THAT(request.bad_words(), ElementsAre("z"));
  EXPECT_TRUE(request.include_stop());
  EXPECT_TRUE(request.has_skip_special_tokens());
  EXPECT_EQ(request.truncate_prompt_tokens(), 4);
  EXPECT_EQ(request.tenant(), "u");
  EXPECT_EQ(request.cache_salt(), "s");
  EXPECT_EQ(request.session_id(), "t");
  EXPECT_EQ(request.priority(), -3) << "the lower number goes first";
  EXPECT_EQ(request.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(request.ttft_slo_ms(), 100);
}

TEST(CompletionRequestTest, AUserThatIsNoNameBecomesOne) {
  const auto parsed = ParseBody(R"({"prompt":"p","user":"Ann Onymous, née X"})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->prompts[0].tenant(), testing::MatchesRegex("user-[0-9a-f]+"));
}

TEST(CompletionRequestTest, WhatWouldChangeTheAnswerIsRefusedAndTheRestIgnored) {
  EXPECT_THAT(FieldError(R"({"prompt":"p","suffix":"x"})", "suffix"), HasSubstr("suffix"));
  FieldError(R"({"prompt":"p","response_format":{"type":"json_object"}})", "response_format");
  FieldError(R"({"prompt":"p","structured_outputs":{"json":{}}})", "structured_outputs");
  FieldError(R"({"prompt":"p","route":"left"})", "route");
  FieldError(R"({"prompt":"p","logit_bias":{"x":1}})", "logit_bias");
  const auto parsed = ParseBody(R"({"prompt":"p","suffix":"","response_format":{"type":"text"},
      "structured_outputs":null,"metadata":{"a":"b"},"service_tier":"auto","nonsense":[1]})");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
}

TEST(CompletionRequestTest, MoreBiasesThanTheRouterTakesAreRefusedUnread) {
  Json biases;
  for (int i = 0; i < 1024; ++i) biases[std::to_string(i)] = 1;
  Json body = {{"prompt", "p"}, {"logit_bias", biases}};
  EXPECT_TRUE(ParseBody(JsonText(body)).ok());
  body["logit_bias"]["x"] = 1;
  EXPECT_THAT(FieldError(JsonText(body), "logit_bias"), HasSubstr("1025 token ids"));
}

TEST(CompletionRequestTest, StreamOptionsNeedAStream) {
  FieldError(R"({"prompt":"p","stream_options":{"include_usage":true}})", "stream_options");
  FieldError(R"({"prompt":"p","stream":true,"prompt_logprobs":1})", "prompt_logprobs");
  const auto parsed = ParseBody(
      R"({"prompt":"p","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->answer.include_usage);
  EXPECT_TRUE(parsed->answer.continuous_usage);
  EXPECT_TRUE(parsed->needs_token_ids());
}

TEST(CompletionRequestTest, AnEchoWithLogprobsWantsThoseOfThePrompt) {
  const auto parsed = ParseBody(R"({"prompt":[[1,2]],"echo":true,"logprobs":1,"max_tokens":1})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->prompts[0].prompt_logprobs(), 1);
  EXPECT_EQ(parsed->prompts[0].sampling().logprobs(), 1);
}

TEST(CompletionRequestTest, LogprobsOfThePromptGoWithOneChoice) {
  FieldError(R"({"prompt":"p","prompt_logprobs":1,"n":2})", "prompt_logprobs");
  FieldError(R"({"prompt":"p","prompt_logprobs":1,"best_of":2})", "prompt_logprobs");
  FieldError(R"({"prompt":"p","echo":true,"logprobs":1,"n":2})", "echo");
  EXPECT_TRUE(ParseBody(R"({"prompt":"p","echo":true,"n":2})").ok());
  EXPECT_TRUE(ParseBody(R"({"prompt":"p","prompt_logprobs":1,"n":1})").ok());
}

TEST(CompletionRequestTest, NoTokensAreWantedWithAnEchoOnly) {
  FieldError(R"({"prompt":"p","max_tokens":0})", "max_tokens");
  const auto parsed = ParseBody(R"({"prompt":"p","max_tokens":0,"echo":true})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->prompts[0].max_tokens(), 0);
  EXPECT_TRUE(parsed->prompts[0].has_prompt_logprobs());
}

TEST(CompletionRequestTest, ABeamSearchTakesItsWidthFromN) {
  const auto parsed = ParseBody(R"({"prompt":"p","use_beam_search":true,"n":4,"temperature":0})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->prompts[0].beam_search().beam_width(), 4);
  EXPECT_FALSE(parsed->prompts[0].sampling().has_temperature());
  EXPECT_THAT(FieldError(R"({"prompt":"p","use_beam_search":true})", "n"), HasSubstr("2 to 16"));
}

}  // namespace
}  // namespace tandem::openai::completion_request_test
