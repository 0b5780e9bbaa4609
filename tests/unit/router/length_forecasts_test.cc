// The router learns from the outputs that it streams, and says how its forecasts came true.

#include "router/output_length/length_forecasts.h"

#include "tests/support/router_fixture.h"

namespace tandem::length_forecasts_test {
namespace {

constexpr LengthQuery kQuery = {.tenant = "", .prompt_tokens = 3, .max_tokens = 4};

TEST(LengthForecastsTest, ComparesForecastsWithWhatCameTrue) {
  LengthForecasts lengths("window", NewWindowLengthPredictor());
  EXPECT_EQ(lengths.Use().predictor(), "window");
  EXPECT_EQ(lengths.Use().mean_tokens(), 0);
  lengths.OnEnded(kQuery, {.mean = 30, .p50 = 20, .p90 = 39.5, .observations = 1}, 40,
                  FinishKind::kStopped);
  lengths.OnEnded(kQuery, {.mean = 10, .p50 = 10, .p90 = 15, .observations = 1}, 16,
                  FinishKind::kCapped);
  lengths.OnInterrupted(kQuery, 7);
  const v1::OutputLengthUse use = lengths.Use();
  EXPECT_EQ(use.stopped(), 1u);
  EXPECT_EQ(use.capped(), 1u);
  EXPECT_EQ(use.interrupted(), 1u);
  EXPECT_EQ(use.mean_tokens(), 28);
  EXPECT_EQ(use.predicted_tokens(), 20);
  EXPECT_EQ(use.error_tokens(), 13);
  EXPECT_EQ(use.within_p90(), 0.5);
}

TEST(LengthForecastsTest, KeepsTheLatestThousandOutcomes) {
  LengthForecasts lengths("adaptive", NewAdaptiveLengthPredictor());
  const LengthForecast forecast = {.mean = 1, .p50 = 1, .p90 = 1, .observations = 0};
  for (int i = 0; i < 2500; ++i) {
    lengths.OnEnded(kQuery, forecast, i < 1500 ? 1 : 3, FinishKind::kStopped);
  }
  EXPECT_EQ(lengths.Use().mean_tokens(), 3);
  EXPECT_EQ(lengths.Use().stopped(), 2500u);
}

TEST(LengthForecastsTest, AnInterruptedOutputIsTakenForTheBeginningOfALongerOne) {
  constexpr LengthQuery kLong = {.tenant = "", .prompt_tokens = 3, .max_tokens = 1000};
  LengthForecasts interrupted("adaptive", NewAdaptiveLengthPredictor());
  LengthForecasts ended("adaptive", NewAdaptiveLengthPredictor());
  for (int i = 0; i < 100; ++i) {
    interrupted.OnInterrupted(kLong, 20);
    ended.OnEnded(kLong, {}, 20, FinishKind::kStopped);
  }
  EXPECT_LT(ended.Predict(kLong).p50, 25);
  EXPECT_GT(interrupted.Predict(kLong).p50, 100);
}

class LearnedLengthsTest : public RouterFixture {
 protected:
  v1::OutputLengthUse Learned() const { return router_.Status().output_lengths(); }
};

TEST_F(LearnedLengthsTest, StopTokensAndLimitsEndOutputs) {
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  request.set_n(3);
  request.set_tenant("alice");
  Submit(request);
  Say("generate u0", {5, 999}, 0);
  EndChoice("generate u0", 0, kStop);
  Say("generate u0", {5, 6, 7, 8}, 1);
  EndChoice("generate u0", 1, kLength);
  EXPECT_EQ(Learned().stopped(), 1u);
  EXPECT_EQ(Learned().capped(), 1u);
  EXPECT_EQ(Learned().mean_tokens(), 3);
  Say("generate u0", {9, 999}, 2);
  EndChoice("generate u0", 2, kStop);
  Close("generate u0", kStop);
  EXPECT_EQ(Learned().stopped(), 2u);
  EXPECT_EQ(Learned().interrupted(), 0u);
  EXPECT_EQ(Learned().tenants(), 1);
  EXPECT_EQ(length_forecasts_.Predict({.tenant = "alice", .prompt_tokens = 3, .max_tokens = 90})
                .observations,
            3);
}

TEST_F(LearnedLengthsTest, ACancelledRequestGivesALowerBoundIfItHasTokens) {
  const RequestId none = Submit(Ask());
  router_.Cancel(none, absl::CancelledError("gone"));
  loop_.RunReady();
  EXPECT_EQ(Learned().interrupted(), 0u);

  Join("u0", v1::WORKER_ROLE_UNIFIED);
  RecordingStream stream;
  const auto some = router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, stream);
  ASSERT_TRUE(some.ok());
  loop_.RunReady();
  Say("generate u0", {5, 6});
  router_.Cancel(*some, absl::CancelledError("gone"));
  loop_.RunReady();
  EXPECT_EQ(Learned().interrupted(), 1u);
  EXPECT_EQ(Learned().stopped() + Learned().capped(), 0u);
}

TEST_F(LearnedLengthsTest, NothingIsLearnedFromOutputsThatOnlyTheirLimitCanEnd) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_ignore_eos(true);
  Submit(request);
  Say("generate u0", {5, 6, 7, 8});
  Finish("generate u0", kLength);
  ASSERT_TRUE(stream_.summary.has_value());
  EXPECT_EQ(Learned().capped(), 0u);
}

// Remembers what is asked of it.
class AskedPolicy final : public RoutingPolicy {
 public:
  explicit AskedPolicy(std::vector<RouteQuery>& asked) : asked_(asked) {}

 protected:
  double Rank(const Candidate&, const RouteQuery&) const override { return 0; }
  PlacementScore Score(const Placement&, const RouteQuery& query) const override {
    asked_.push_back(query);
    return {};
  }

 private:
  std::vector<RouteQuery>& asked_;
};

// A router whose policy is asked about outputs of four tokens at most, two of which are usual.
class ExpectedLengthTest : public LearnedLengthsTest {
 protected:
  ExpectedLengthTest() {
    Join("u0", v1::WORKER_ROLE_UNIFIED);
    for (int i = 0; i < 100; ++i) {
      length_forecasts_.OnEnded(kQuery, length_forecasts_.Predict(kQuery), 2, FinishKind::kStopped);
    }
  }

  void Send(const v1::GenerateRequest& request) {
    ASSERT_TRUE(asking_router_.Submit(request, kNoDeadline, stream_).ok());
    loop_.RunReady();
  }

  std::vector<RouteQuery> asked_;
  const std::unique_ptr<RoutingPolicy> usual_policy_ =
      std::exchange(policy_, std::make_unique<AskedPolicy>(asked_));
  Router asking_router_{Options(), Parts(tokenizer_)};
};

TEST_F(ExpectedLengthTest, PoliciesAreToldTheExpectedLengthOfEachChoice) {
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_n(2);
  Send(request);
  ASSERT_FALSE(asked_.empty());
  EXPECT_EQ(asked_.back().sequences, 2);
  EXPECT_NEAR(asked_.back().expected_output_tokens, 2, 0.2);
}

TEST_F(ExpectedLengthTest, PoliciesAreToldTheSlos) {
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_ttft_slo_ms(150);
  Send(request);
  ASSERT_FALSE(asked_.empty());
  EXPECT_EQ(asked_.back().slo.ttft, ModelTime(150));
  EXPECT_FALSE(asked_.back().slo.tpot.has_value());
}

TEST_F(ExpectedLengthTest, TheTokensThatTheClientHasAreComputedWithThePrompt) {
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  Send(Ask(v1::ROUTE_UNIFIED));
  EXPECT_EQ(asked_.back().prompt_tokens, 3);
  Say("generate u0", {5, 6});
  End("generate u0", Unavailable("Connection reset by peer"), kNetwork);
  EXPECT_EQ(asked_.back().prompt_tokens, 5);
  EXPECT_EQ(asked_.back().context_tokens, 7);
}

TEST_F(ExpectedLengthTest, WhatOnlyItsLimitCanEndIsExpectedToReachIt) {
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_ignore_eos(true);
  Send(request);
  ASSERT_FALSE(asked_.empty());
  EXPECT_EQ(asked_.back().expected_output_tokens, 4);
}

TEST_F(ExpectedLengthTest, AfterALossOnlyTheTokensStillToComeAreExpected) {
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_ignore_eos(true);
  Send(request);
  Say("generate u0", {5, 6, 7});
  End("generate u0", Unavailable("Connection reset by peer"), kNetwork);
  EXPECT_EQ(workers_.Open(), std::vector<std::string>{"generate u1"});
  EXPECT_EQ(asked_.back().expected_output_tokens, 1);
}

}  // namespace
}  // namespace tandem::length_forecasts_test
