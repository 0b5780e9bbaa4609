// The public API over real processes: answers, and what must not depend on the route.

#include <future>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::routes_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";

class RoutesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster(); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void TearDown() override { cluster_->WaitUntilIdle(); }

  Client& client() { return cluster_->client(); }

  static TestCluster* cluster_;
};
TestCluster* RoutesTest::cluster_ = nullptr;

std::vector<std::vector<int32_t>> Ids(const Outcome& outcome) {
  std::vector<std::vector<int32_t>> ids;
  for (const auto& choice : outcome.generation.choices) ids.push_back(choice.token_ids);
  return ids;
}

TEST_F(RoutesTest, EveryRouteGivesTheSameTokens) {
  for (const float temperature : {0.0f, 0.9f}) {
    v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, 40);
    request.set_n(2);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_sampling()->set_seed(11);
    const Outcome unified = Ask(client(), request);
    ASSERT_TRUE(unified.status.ok()) << unified.status;
    EXPECT_EQ(unified.generation.choices[0].token_ids.size(), 40u);
    for (const v1::Route route : {v1::ROUTE_DISAGGREGATED, v1::ROUTE_AUTO}) {
      request.set_route(route);
      const Outcome other = Ask(client(), request);
      ASSERT_TRUE(other.status.ok()) << other.status;
      EXPECT_EQ(Ids(other), Ids(unified)) << Name(route) << " at temperature " << temperature;
      EXPECT_EQ(other.generation.choices[1].text, unified.generation.choices[1].text);
    }
  }
}

class Int8RoutesTest : public testing::TestWithParam<std::string> {};

TEST_P(Int8RoutesTest, EveryRouteGivesTheSameTokensWhereWeightsAreQuantised) {
  TestCluster cluster({.worker_flags = {"--weights=" + GetParam()}});
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, 40);
  const Outcome unified = Ask(cluster.client(), request);
  ASSERT_TRUE(unified.status.ok()) << unified.status;
  EXPECT_EQ(unified.generation.choices[0].token_ids.size(), 40u);
  request.set_route(v1::ROUTE_DISAGGREGATED);
  const Outcome apart = Ask(cluster.client(), request);
  ASSERT_TRUE(apart.status.ok()) << apart.status;
  EXPECT_EQ(Ids(apart), Ids(unified));
}

INSTANTIATE_TEST_SUITE_P(Ways, Int8RoutesTest, testing::Values("int8", "int8-layers"));

TEST_F(RoutesTest, TheFirstOfSeveralChoicesIsTheOnlyOneOfOne) {
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_AUTO, 20);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(3);
  const Outcome one = Ask(client(), request);
  request.set_n(3);
  const Outcome three = Ask(client(), request);
  ASSERT_TRUE(one.status.ok() && three.status.ok()) << one.status << three.status;
  EXPECT_EQ(three.generation.choices[0].token_ids, one.generation.choices[0].token_ids);
  EXPECT_NE(three.generation.choices[1].token_ids, one.generation.choices[0].token_ids);
  EXPECT_EQ(three.generation.summary.usage().completion_tokens(), 60);
}

TEST_F(RoutesTest, StagesAddUpAndKvIsCounted) {
  const Outcome split = Ask(client(), TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 8));
  ASSERT_TRUE(split.status.ok()) << split.status;
  const v1::ChoiceFinish& finish = split.generation.choices[0].finish;
  EXPECT_EQ(finish.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_LT(StagesErrorMs(finish.stages()), 1e-6);
  EXPECT_GE(finish.stages().residual_ms(), 0);
  EXPECT_GT(finish.stages().prefill_ms(), 0);
  EXPECT_GT(finish.stages().reserve_ms(), 0);
  EXPECT_GT(finish.tpot_ms(), 0);
  EXPECT_GE(finish.e2e_ms(), finish.stages().ttft_ms());
  EXPECT_GE(finish.kv_bytes().wire(), finish.kv_bytes().raw());
  EXPECT_GT(finish.kv_bytes().raw(), 0u);
  EXPECT_LE(split.generation.summary.usage().kv_hidden_bytes(), finish.kv_bytes().raw());
  EXPECT_EQ(finish.prefill_worker(), "prefill-0");
  EXPECT_EQ(finish.decode_worker(), "decode-0");
  const Outcome unified = Ask(client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 8));
  ASSERT_TRUE(unified.status.ok()) << unified.status;
  EXPECT_EQ(unified.generation.choices[0].finish.kv_bytes().raw(), 0u);
  EXPECT_LT(StagesErrorMs(unified.generation.choices[0].finish.stages()), 1e-6);
}

TEST_F(RoutesTest, OneTokenIsEnough) {
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    const Outcome outcome = Ask(client(), TextRequest(kPrompt, route, 1));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), 1u);
    EXPECT_EQ(outcome.generation.choices[0].finish.reason(), v1::FINISH_REASON_LENGTH);
  }
}

TEST_F(RoutesTest, TokenIdsAreThePromptThatTheTextWas) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text(kPrompt);
  const auto ids = client().Tokenize(tokenize, std::chrono::seconds(30));
  ASSERT_TRUE(ids.ok()) << ids.status();
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, 10);
  const Outcome by_text = Ask(client(), request);
  *request.mutable_token_ids()->mutable_ids() = ids->token_ids();
  const Outcome by_ids = Ask(client(), request);
  EXPECT_EQ(Ids(by_text), Ids(by_ids));
  EXPECT_EQ(by_ids.generation.summary.usage().prompt_tokens(), ids->token_ids_size());
}

TEST_F(RoutesTest, StopStringsEndTheTextBeforeThem) {
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    v1::GenerateRequest request = TextRequest(kPrompt, route, 40);
    const Outcome whole = Ask(client(), request);
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    const std::string& text = whole.generation.choices[0].text;
    ASSERT_GT(text.size(), 20u);
    const std::string stop = text.substr(12, 5);
    request.add_stop(stop);
    const Outcome stopped = Ask(client(), request);
    ASSERT_TRUE(stopped.status.ok()) << stopped.status;
    const Generation::Choice& choice = stopped.generation.choices[0];
    EXPECT_EQ(choice.text, text.substr(0, text.find(stop)));
    EXPECT_EQ(choice.finish.reason(), v1::FINISH_REASON_STOP);
    EXPECT_EQ(choice.finish.stop(), stop);
    EXPECT_LT(choice.token_ids.size(), 40u);
  }
}

TEST_F(RoutesTest, StopTokensEndTheChoice) {
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 40);
  const Outcome whole = Ask(client(), request);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (const size_t at : {0, 5}) {
    const int32_t id = whole.generation.choices[0].token_ids[at];
    request.clear_stop_token_ids();
    request.add_stop_token_ids(id);
    const Outcome stopped = Ask(client(), request);
    ASSERT_TRUE(stopped.status.ok()) << stopped.status;
    EXPECT_EQ(stopped.generation.choices[0].finish.reason(), v1::FINISH_REASON_STOP);
    EXPECT_EQ(stopped.generation.choices[0].token_ids.back(), id);
    EXPECT_LE(stopped.generation.choices[0].token_ids.size(), at + 1);
  }
}

TEST_F(RoutesTest, LogprobsComeWithEveryToken) {
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 6);
  request.mutable_sampling()->set_logprobs(3);
  const Outcome outcome = Ask(client(), request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  const Generation::Choice& choice = outcome.generation.choices[0];
  ASSERT_EQ(choice.logprobs.size(), choice.token_ids.size());
  for (size_t i = 0; i < choice.logprobs.size(); ++i) {
    ASSERT_EQ(choice.logprobs[i].top_size(), 3);
    EXPECT_EQ(choice.logprobs[i].sampled().token_id(), choice.token_ids[i]);
    EXPECT_EQ(choice.logprobs[i].top(0).token_id(), choice.token_ids[i]) << "greedy";
  }
}

TEST_F(RoutesTest, ManyAtOnceAllEndWell) {
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_AUTO, 30);
  const Outcome alone = Ask(client(), request);
  std::vector<std::future<Outcome>> outcomes;
  for (int i = 0; i < 12; ++i) {
    request.set_route(static_cast<v1::Route>(i % 3));
    outcomes.push_back(
        std::async(std::launch::async, [this, request] { return Ask(client(), request); }));
  }
  for (auto& future : outcomes) {
    const Outcome outcome = future.get();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(Ids(outcome), Ids(alone));
  }
}

TEST_F(RoutesTest, BadRequestsAreRefusedByFieldAndNothingElseChanges) {
  const auto expect = [this](v1::GenerateRequest request, absl::StatusCode code,
                             const std::string& says) {
    const Outcome outcome = Ask(client(), request);
    EXPECT_EQ(outcome.status.code(), code) << outcome.status;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(says));
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const v1::GenerateRequest good = TextRequest(kPrompt, v1::ROUTE_AUTO, 4);
  v1::GenerateRequest bad = good;
  bad.set_max_tokens(0);
  expect(bad, kInvalid, "max_tokens=0");
  bad = good;
  bad.mutable_sampling()->set_temperature(-1);
  expect(bad, kInvalid, "temperature=-1");
  bad = good;
  bad.set_model("other");
  expect(bad, absl::StatusCode::kNotFound, "this router serves sample");
  bad = good;
  bad.set_text("caf\xe9");
  expect(bad, kInvalid, "text is not UTF-8");
  bad = good;
  bad.add_stop("\xff");
  expect(bad, kInvalid, "stop is not UTF-8");
  bad = good;
  std::string long_text;
  for (int i = 0; i < 3000; ++i) long_text += "word ";
  bad.set_text(long_text);
  expect(bad, kInvalid, "the context of 2048");
  bad = good;
  bad.mutable_token_ids()->add_ids(1 << 20);
  expect(bad, kInvalid, "token_ids[0]=1048576");
  bad = good;
  bad.set_text(std::string(5 << 20, 'a'));
  expect(bad, kInvalid, "at most 4194304 are taken");
  const Outcome after = Ask(client(), good);
  EXPECT_TRUE(after.status.ok()) << after.status;
}

}  // namespace
}  // namespace tandem::routes_test
