// n, best_of and beam search over real processes: what must not depend on the route.

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer/sampler.h"
#include "tests/support/test_cluster.h"

namespace tandem::several_choices_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
constexpr v1::Route kRoutes[] = {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED};

class SeveralChoicesTest : public testing::Test {
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
TestCluster* SeveralChoicesTest::cluster_ = nullptr;

v1::GenerateRequest Sampled(v1::Route route, int32_t n, int32_t max_tokens) {
  v1::GenerateRequest request = TextRequest(kPrompt, route, max_tokens);
  request.set_n(n);
  request.mutable_sampling()->set_temperature(0.9f);
  request.mutable_sampling()->set_seed(11);
  return request;
}

v1::GenerateRequest Beams(v1::Route route, int32_t width, int32_t n) {
  v1::GenerateRequest request = TextRequest(kPrompt, route, 24);
  request.clear_sampling();
  request.set_ignore_eos(false);
  request.set_n(n);
  request.mutable_beam_search()->set_beam_width(width);
  return request;
}

std::vector<std::vector<int32_t>> Ids(const Outcome& outcome) {
  std::vector<std::vector<int32_t>> ids;
  for (const auto& choice : outcome.generation.choices) ids.push_back(choice.token_ids);
  return ids;
}

TEST_F(SeveralChoicesTest, EachIsTheAnswerOfItsOwnSeedOnEveryRoute) {
  std::vector<std::vector<int32_t>> alone;
  for (int32_t i = 0; i < 4; ++i) {
    v1::GenerateRequest request = Sampled(v1::ROUTE_UNIFIED, 1, 30);
    request.mutable_sampling()->set_seed(ChoiceSeed(11, i));
    const Outcome outcome = Ask(client(), request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    alone.push_back(outcome.generation.choices[0].token_ids);
  }
  EXPECT_EQ(std::set(alone.begin(), alone.end()).size(), 4u) << "seeds that make no difference";
  for (const v1::Route route : kRoutes) {
    const Outcome four = Ask(client(), Sampled(route, 4, 30));
    ASSERT_TRUE(four.status.ok()) << four.status;
    EXPECT_EQ(Ids(four), alone) << Name(route);
    for (const Generation::Choice& choice : four.generation.choices) {
      EXPECT_EQ(choice.finish.reason(), v1::FINISH_REASON_LENGTH);
      EXPECT_EQ(choice.finish.completion_tokens(), 30);
      EXPECT_LT(StagesErrorMs(choice.finish.stages()), 1e-6);
      EXPECT_GE(choice.finish.stages().residual_ms(), 0);
    }
    EXPECT_EQ(four.generation.summary.usage().completion_tokens(), 120);
  }
}

TEST_F(SeveralChoicesTest, TheyAreStreamedSideBySide) {
  for (const v1::Route route : kRoutes) {
    std::set<int32_t> begun;
    std::set<int32_t> ended;
    size_t begun_before_the_first_end = 0;
    const absl::Status status = client().Generate(Sampled(route, 4, 30), Client::kNoTimeout,
                                                  [&](const v1::GenerateResponse& event) {
                                                    if (event.has_chunk())
                                                      begun.insert(event.chunk().index());
                                                    if (event.has_finish() && ended.empty())
                                                      begun_before_the_first_end = begun.size();
                                                    if (event.has_finish())
                                                      ended.insert(event.finish().index());
                                                    return true;
                                                  });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(begun_before_the_first_end, 4u);
    EXPECT_EQ(ended.size(), 4u);
  }
}

TEST_F(SeveralChoicesTest, OnePromptMovesForAll) {
  const Outcome one = Ask(client(), Sampled(v1::ROUTE_DISAGGREGATED, 1, 8));
  const Outcome eight = Ask(client(), Sampled(v1::ROUTE_DISAGGREGATED, 8, 8));
  ASSERT_TRUE(one.status.ok() && eight.status.ok()) << one.status << eight.status;
  const uint64_t raw = one.generation.choices[0].finish.kv_bytes().raw();
  EXPECT_GT(raw, 0u);
  for (const Generation::Choice& choice : eight.generation.choices) {
    EXPECT_EQ(choice.finish.kv_bytes().raw(), raw);
  }
}

TEST_F(SeveralChoicesTest, OneTokenEachNeedsNoDecode) {
  const Outcome unified = Ask(client(), Sampled(v1::ROUTE_UNIFIED, 3, 1));
  const Outcome split = Ask(client(), Sampled(v1::ROUTE_DISAGGREGATED, 3, 1));
  ASSERT_TRUE(unified.status.ok() && split.status.ok()) << unified.status << split.status;
  EXPECT_EQ(Ids(split), Ids(unified));
  EXPECT_EQ(split.generation.summary.usage().completion_tokens(), 3);
}

TEST_F(SeveralChoicesTest, AStopStringEndsOneOfThem) {
  const Outcome whole = Ask(client(), Sampled(v1::ROUTE_UNIFIED, 4, 40));
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  // Some letters in the middle of choice 2, which the others may or may not have.
  const std::string stop = whole.generation.choices[2].text.substr(30, 6);
  for (const v1::Route route : kRoutes) {
    v1::GenerateRequest request = Sampled(route, 4, 40);
    request.add_stop(stop);
    const Outcome stopped = Ask(client(), request);
    ASSERT_TRUE(stopped.status.ok()) << stopped.status;
    ASSERT_EQ(stopped.generation.choices.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      const std::string& text = whole.generation.choices[i].text;
      const Generation::Choice& choice = stopped.generation.choices[i];
      EXPECT_EQ(choice.text, text.substr(0, text.find(stop))) << Name(route) << ' ' << i;
      const bool ends = text.find(stop) != std::string::npos;
      EXPECT_EQ(choice.finish.reason(), ends ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
      EXPECT_EQ(choice.finish.stop(), ends ? stop : "");
    }
    EXPECT_EQ(stopped.generation.choices[2].finish.stop(), stop);
    EXPECT_LT(stopped.generation.choices[2].token_ids.size(), 40u);
  }
}

TEST_F(SeveralChoicesTest, StoppedChoicesStopComputingAtTheWorker) {
  for (const v1::Route route : kRoutes) {
    const std::string worker = route == v1::ROUTE_UNIFIED ? "unified-0" : "decode-0";
    const Outcome whole = Ask(client(), Sampled(route, 2, 20));
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    v1::GenerateRequest request = Sampled(route, 2, 1900);
    request.add_stop(whole.generation.choices[0].text.substr(8, 4));
    request.add_stop(whole.generation.choices[1].text.substr(8, 4));
    cluster_->WaitUntilIdle();
    const auto before = client().GetStatus(std::chrono::seconds(30));
    ASSERT_TRUE(before.ok()) << before.status();
    const Outcome stopped = Ask(client(), request);
    ASSERT_TRUE(stopped.status.ok()) << stopped.status;
    cluster_->WaitUntilIdle();
    const auto after = client().GetStatus(std::chrono::seconds(30));
    ASSERT_TRUE(after.ok()) << after.status();
    const uint64_t computed = FindWorker(*after, worker)->load().output_tokens() -
                              FindWorker(*before, worker)->load().output_tokens();
    EXPECT_LT(computed, 1900u) << "tokens that nobody wanted";
  }
}

TEST_F(SeveralChoicesTest, BestOfGivesTheMostProbableOfThem) {
  v1::GenerateRequest all = Sampled(v1::ROUTE_UNIFIED, 6, 20);
  all.mutable_sampling()->set_logprobs(0);
  const Outcome six = Ask(client(), all);
  ASSERT_TRUE(six.status.ok()) << six.status;
  std::vector<Generation::Choice> choices = six.generation.choices;
  for (const Generation::Choice& choice : choices) {
    double sum = 0;
    for (const v1::TokenLogprobs& entry : choice.logprobs) sum += entry.sampled().logprob();
    EXPECT_NEAR(choice.finish.cumulative_logprob(), sum, 1e-9);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Generation::Choice& a, const Generation::Choice& b) {
                     return a.finish.cumulative_logprob() > b.finish.cumulative_logprob();
                   });
  for (const v1::Route route : kRoutes) {
    v1::GenerateRequest request = Sampled(route, 2, 20);
    request.set_best_of(6);
    const Outcome best = Ask(client(), request);
    ASSERT_TRUE(best.status.ok()) << best.status;
    ASSERT_EQ(best.generation.choices.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(best.generation.choices[i].token_ids, choices[i].token_ids) << Name(route);
      EXPECT_EQ(best.generation.choices[i].text, choices[i].text);
      EXPECT_NEAR(best.generation.choices[i].finish.cumulative_logprob(),
                  choices[i].finish.cumulative_logprob(), 1e-3);
      EXPECT_TRUE(best.generation.choices[i].logprobs.empty()) << "not asked for";
    }
    EXPECT_EQ(best.generation.summary.usage().completion_tokens(), 120);
  }
}

TEST_F(SeveralChoicesTest, BeamsFindTheSameOnEveryRoute) {
  for (const int32_t width : {2, 4, 8}) {
    const Outcome unified = Ask(client(), Beams(v1::ROUTE_UNIFIED, width, width));
    const Outcome split = Ask(client(), Beams(v1::ROUTE_DISAGGREGATED, width, width));
    ASSERT_TRUE(unified.status.ok() && split.status.ok()) << unified.status << split.status;
    ASSERT_EQ(unified.generation.choices.size(), static_cast<size_t>(width));
    EXPECT_EQ(Ids(split), Ids(unified)) << "width " << width;
    for (int32_t i = 0; i < width; ++i) {
      const v1::ChoiceFinish& a = unified.generation.choices[i].finish;
      const v1::ChoiceFinish& b = split.generation.choices[i].finish;
      EXPECT_EQ(unified.generation.choices[i].text, split.generation.choices[i].text);
      EXPECT_NEAR(a.score(), b.score(), 1e-3);
      EXPECT_NEAR(a.score() * a.completion_tokens(), a.cumulative_logprob(), 1e-4)
          << "length_penalty is 1";
      EXPECT_LE(a.score(), unified.generation.choices[std::max(i - 1, 0)].finish.score());
      EXPECT_LT(StagesErrorMs(b.stages()), 1e-6);
    }
    EXPECT_GT(split.generation.choices[0].finish.kv_bytes().raw(), 0u);
  }
}

TEST_F(SeveralChoicesTest, ABeamSearchFindsAtLeastWhatGreedyDoes) {
  v1::GenerateRequest greedy = TextRequest(kPrompt, v1::ROUTE_UNIFIED, 24);
  greedy.mutable_sampling()->set_logprobs(0);
  const Outcome one = Ask(client(), greedy);
  v1::GenerateRequest beams = Beams(v1::ROUTE_DISAGGREGATED, 8, 1);
  beams.set_ignore_eos(true);
  beams.mutable_sampling()->set_logprobs(2);
  const Outcome best = Ask(client(), beams);
  ASSERT_TRUE(one.status.ok() && best.status.ok()) << one.status << best.status;
  const Generation::Choice& found = best.generation.choices[0];
  EXPECT_GE(found.finish.cumulative_logprob(),
            one.generation.choices[0].finish.cumulative_logprob());
  ASSERT_EQ(found.logprobs.size(), found.token_ids.size());
  double sum = 0;
  for (size_t i = 0; i < found.logprobs.size(); ++i) {
    EXPECT_EQ(found.logprobs[i].sampled().token_id(), found.token_ids[i]);
    sum += found.logprobs[i].sampled().logprob();
  }
  EXPECT_NEAR(sum, found.finish.cumulative_logprob(), 1e-3);
}

TEST_F(SeveralChoicesTest, BeamsOfOneToken) {
  for (const v1::Route route : kRoutes) {
    v1::GenerateRequest request = Beams(route, 4, 4);
    request.set_max_tokens(1);
    const Outcome outcome = Ask(client(), request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ASSERT_EQ(outcome.generation.choices.size(), 4u);
    EXPECT_EQ(outcome.generation.choices[3].token_ids.size(), 1u);
  }
}

TEST_F(SeveralChoicesTest, BadChoicesAreRefusedByField) {
  const auto expect = [this](v1::GenerateRequest request, const std::string& says) {
    const Outcome outcome = Ask(client(), request);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument) << outcome.status;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(says));
  };
  const v1::GenerateRequest good = Sampled(v1::ROUTE_AUTO, 2, 4);
  v1::GenerateRequest bad = good;
  bad.set_n(0);
  expect(bad, "n=0");
  bad.set_n(65);
  expect(bad, "n=65");
  bad = good;
  bad.set_best_of(1);
  expect(bad, "best_of=1");
  bad = Beams(v1::ROUTE_AUTO, 4, 5);
  expect(bad, "n=5 exceeds beam_width=4");
  bad = Beams(v1::ROUTE_AUTO, 4, 2);
  bad.mutable_sampling()->set_repetition_penalty(1.2f);
  expect(bad, "repetition_penalty=1.2");
  bad = Beams(v1::ROUTE_AUTO, 4, 2);
  bad.add_stop("x");
  expect(bad, "stop has 1 strings");
}

}  // namespace
}  // namespace tandem::several_choices_test
