// Predictors of output lengths: what each promises, and that the adaptive one is the better one by
// pinball loss on traces with fixed seeds.

#include "router/output_length/output_length_predictor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/output_length/length_bins.h"

namespace tandem::output_length_predictor_test {
namespace {

constexpr LengthQuery kShortPrompt = {.tenant = "", .prompt_tokens = 20, .max_tokens = 4096};
constexpr LengthQuery kLongPrompt = {.tenant = "", .prompt_tokens = 1500, .max_tokens = 4096};

LengthQuery Of(std::string_view tenant, int32_t max_tokens = 4096) {
  return {.tenant = tenant, .prompt_tokens = 20, .max_tokens = max_tokens};
}

void Stop(OutputLengthPredictor& predictor, const LengthQuery& query, int32_t tokens,
          int times = 1) {
  for (int i = 0; i < times; ++i) predictor.Observe(query, tokens, FinishKind::kStopped);
}

TEST(LengthBinsTest, FollowOneAnotherAndAreAtMostAnEighthWide) {
  EXPECT_EQ(LengthBins::Begin(0), 1);
  for (int32_t bin = 0; bin < LengthBins::kCount; ++bin) {
    const int32_t begin = LengthBins::Begin(bin);
    const int32_t end = LengthBins::End(bin);
    ASSERT_LT(begin, end);
    EXPECT_EQ(LengthBins::Of(begin), bin);
    EXPECT_EQ(LengthBins::Of(end - 1), bin);
    EXPECT_LE(8 * (end - begin), std::max(begin, 8));
  }
  EXPECT_EQ(LengthBins::End(LengthBins::kCount - 1), 1 << 20);
  EXPECT_EQ(LengthBins::Of(2'000'000'000), LengthBins::kCount - 1);
}

TEST(OutputLengthPredictorTest, AreFoundByName) {
  EXPECT_THAT(OutputLengthPredictorNames(), testing::ElementsAre("adaptive", "window"));
  for (const std::string_view name : OutputLengthPredictorNames()) {
    EXPECT_TRUE(NewOutputLengthPredictor(name).ok());
  }
  const absl::Status unknown = NewOutputLengthPredictor("oracle").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_THAT(std::string(unknown.message()), testing::HasSubstr("oracle"));
  EXPECT_THAT(std::string(unknown.message()), testing::HasSubstr("adaptive, window"));
}

// Of all predictors, whatever was observed.
TEST(OutputLengthPredictorTest, ForecastsLieBetweenWhatIsThereAndTheLimit) {
  for (const std::string_view name : OutputLengthPredictorNames()) {
    const auto predictor = *NewOutputLengthPredictor(name);
    for (int round = 0; round < 4; ++round) {
      for (const int32_t max_tokens : {1, 2, 17, 300, 1 << 20, 2'000'000'000}) {
        for (const int32_t emitted : {0, 1, 16, 299, 1'100'000, 1'999'999'999}) {
          if (emitted >= max_tokens) continue;
          const LengthForecast forecast = predictor->Predict(
              {.tenant = "a", .prompt_tokens = 20, .max_tokens = max_tokens, .emitted = emitted});
          for (const double value : {forecast.mean, forecast.p50, forecast.p90}) {
            EXPECT_GE(value, std::max(emitted, 1)) << name;
            EXPECT_LE(value, max_tokens) << name;
          }
          EXPECT_LE(forecast.p50, forecast.p90);
        }
      }
      Stop(*predictor, Of("a"), 1, 20 * round);
      Stop(*predictor, Of("a"), 1 << 21, round);
      predictor->Observe(Of("a"), 300, FinishKind::kCapped);
    }
  }
}

TEST(AdaptiveLengthTest, GuessesUntilItHasSeenSomething) {
  const auto predictor = NewAdaptiveLengthPredictor();
  const LengthForecast guess = predictor->Predict(kShortPrompt);
  EXPECT_EQ(guess.observations, 0);
  EXPECT_NEAR(guess.p50, 256 * std::numbers::ln2, 5);
  Stop(*predictor, kShortPrompt, 10);
  EXPECT_EQ(predictor->Predict(kShortPrompt).observations, 1);
  EXPECT_LT(predictor->Predict(kShortPrompt).p50, 11);
}

TEST(AdaptiveLengthTest, LearnsBySizeOfThePromptAndTakesAllWhereASizeIsNew) {
  const auto predictor = NewAdaptiveLengthPredictor();
  Stop(*predictor, kShortPrompt, 10, 50);
  EXPECT_NEAR(predictor->Predict(kLongPrompt).p50, 10, 0.5) << "nothing is known of long prompts";
  Stop(*predictor, kLongPrompt, 700, 50);
  EXPECT_NEAR(predictor->Predict(kShortPrompt).p50, 10, 0.5);
  EXPECT_NEAR(predictor->Predict(kLongPrompt).p50, 700, 50) << "within its bin";
  EXPECT_NEAR(predictor->Predict(kLongPrompt).mean, 700, 70);
}

TEST(AdaptiveLengthTest, QuantilesFollowTheDistribution) {
  const auto predictor = NewAdaptiveLengthPredictor();
  for (int i = 0; i < 500; ++i) Stop(*predictor, kShortPrompt, i % 5 == 0 ? 800 : 12);
  const LengthForecast forecast = predictor->Predict(kShortPrompt);
  EXPECT_NEAR(forecast.p50, 12, 0.5);
  EXPECT_NEAR(forecast.p90, 800, 60);
  EXPECT_NEAR(forecast.mean, 0.2 * 800 + 0.8 * 12, 30);
}

TEST(AdaptiveLengthTest, WhatHasPassedTheShortOnesWillBeLong) {
  const auto predictor = NewAdaptiveLengthPredictor();
  for (int i = 0; i < 500; ++i) Stop(*predictor, kShortPrompt, i % 5 == 0 ? 800 : 12);
  LengthQuery query = kShortPrompt;
  query.emitted = 20;
  EXPECT_NEAR(predictor->Predict(query).p50, 800, 60);
  query.emitted = 5000;
  query.max_tokens = 6000;
  EXPECT_GT(predictor->Predict(query).p50, 5000) << "longer than any that was seen";
}

TEST(AdaptiveLengthTest, ACappedOutputIsALowerBound) {
  const auto predictor = NewAdaptiveLengthPredictor();
  for (int i = 0; i < 200; ++i) {
    predictor->Observe(Of("", 32), 32, FinishKind::kCapped);
    Stop(*predictor, kShortPrompt, 500);
  }
  EXPECT_NEAR(predictor->Predict(kShortPrompt).p50, 500, 40);
  EXPECT_EQ(predictor->Predict(Of("", 32)).p90, 32);
  const auto window = NewWindowLengthPredictor();
  for (int i = 0; i < 50; ++i) {
    window->Observe(Of("", 32), 32, FinishKind::kCapped);
    Stop(*window, kShortPrompt, 500);
  }
  EXPECT_EQ(window->Predict(kShortPrompt).p50, 266) << "the baseline takes the mean";
}

TEST(AdaptiveLengthTest, TellsTenantsApart) {
  const auto predictor = NewAdaptiveLengthPredictor();
  for (int i = 0; i < 40; ++i) {
    Stop(*predictor, Of("chat"), 15);
    Stop(*predictor, Of("reports"), 900);
  }
  EXPECT_NEAR(predictor->Predict(Of("chat")).p50, 15, 0.5);
  EXPECT_NEAR(predictor->Predict(Of("reports")).p50, 900, 60);
  EXPECT_GT(predictor->Predict(Of("new")).p90, 800) << "it may be like either";
  EXPECT_EQ(predictor->tenants(), 2);
}

TEST(AdaptiveLengthTest, ForgetsTheTenantNotSeenForTheLongestTime) {
  const auto predictor = NewAdaptiveLengthPredictor(2);
  Stop(*predictor, Of("a"), 900, 40);
  Stop(*predictor, Of("b"), 15, 400);
  Stop(*predictor, Of("a"), 900);
  EXPECT_GT(predictor->Predict(Of("a")).p50, 500);
  Stop(*predictor, Of("c"), 15);
  EXPECT_EQ(predictor->tenants(), 2);
  EXPECT_GT(predictor->Predict(Of("a")).p50, 500) << "b was forgotten";
  Stop(*predictor, Of("b"), 15);
  EXPECT_LT(predictor->Predict(Of("a")).p50, 20) << "now a was";
}

TEST(WindowLengthTest, IsTheOriginal) {
  const auto predictor = NewWindowLengthPredictor();
  EXPECT_EQ(predictor->Predict(kShortPrompt).mean, 256);
  Stop(*predictor, kShortPrompt, 10);
  EXPECT_EQ(predictor->Predict(kShortPrompt).mean, 10) << "the mean of all";
  Stop(*predictor, kLongPrompt, 101, 3);
  EXPECT_EQ(predictor->Predict(kShortPrompt).mean, 78) << "fewer than five in the bucket; 78.25";
  Stop(*predictor, kShortPrompt, 11, 5);
  EXPECT_EQ(predictor->Predict(kShortPrompt).mean, 11) << "10.83";
  Stop(*predictor, kShortPrompt, 20, 50);
  EXPECT_EQ(predictor->Predict(kShortPrompt).mean, 20) << "the latest fifty";
  Stop(*predictor, kShortPrompt, 30, 300);
  EXPECT_EQ(predictor->Predict(kLongPrompt).mean, 30) << "the latest three hundred of all";
  LengthQuery begun = kShortPrompt;
  begun.emitted = 44;
  EXPECT_EQ(predictor->Predict(begun).p50, 45);
}

TEST(WindowLengthTest, HasTheBucketsOfTheOriginal) {
  for (const auto& [prompt, same, other] :
       {std::array{64, 1, 65}, {65, 128, 64}, {1025, 100000, 1024}, {2048, 1025, 1024}}) {
    const auto predictor = NewWindowLengthPredictor();
    const auto of = [](int32_t tokens) {
      return LengthQuery{.tenant = "", .prompt_tokens = tokens, .max_tokens = 4096};
    };
    Stop(*predictor, of(prompt), 10, 5);
    Stop(*predictor, of(other), 500, 5);
    EXPECT_EQ(predictor->Predict(of(same)).mean, 10) << prompt;
  }
}

// An output of a trace.
struct TracedOutput {
  int32_t prompt_tokens;
  int32_t max_tokens;
  int32_t length;  // without the limit
  std::string tenant;
};

// Random numbers of one output.
class Draw {
 public:
  Draw(uint64_t seed, int index) : seed_(seed), next_(static_cast<uint64_t>(index) * 8) {}
  double Uniform() { return UniformAt(seed_, next_++); }
  int32_t LogNormal(double median, double sigma) {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * Uniform());
    return std::max(1, static_cast<int32_t>(median * std::exp(sigma * normal)));
  }
  int32_t Prompt() { return std::min(LogNormal(300, 1.2), 8000); }

 private:
  const uint64_t seed_;
  uint64_t next_;
};

using Trace = std::function<TracedOutput(int index, Draw& draw)>;

double PinballLoss(double quantile, double forecast, double actual) {
  return actual >= forecast ? quantile * (actual - forecast) : (1 - quantile) * (forecast - actual);
}

struct Losses {
  double p50 = 0;
  double p90 = 0;
};

// Every output is predicted when its request comes, and observed 16 requests later.
Losses LossesOf(std::string_view predictor_name, const Trace& trace, uint64_t seed) {
  constexpr int kOutputs = 3000;
  constexpr int kDelay = 16;
  const auto predictor = *NewOutputLengthPredictor(predictor_name);
  std::vector<TracedOutput> outputs;
  Losses losses;
  for (int i = 0; i < kOutputs; ++i) {
    Draw draw(seed, i);
    outputs.push_back(trace(i, draw));
    const auto query_of = [](const TracedOutput& one) {
      return LengthQuery{
          .tenant = one.tenant, .prompt_tokens = one.prompt_tokens, .max_tokens = one.max_tokens};
    };
    const TracedOutput& now = outputs.back();
    const LengthForecast forecast = predictor->Predict(query_of(now));
    const double actual = std::min(now.length, now.max_tokens);
    losses.p50 += PinballLoss(0.5, forecast.p50, actual) / kOutputs;
    losses.p90 += PinballLoss(0.9, forecast.p90, actual) / kOutputs;
    if (i < kDelay) continue;
    const TracedOutput& ended = outputs[i - kDelay];
    const bool capped = ended.length > ended.max_tokens;
    predictor->Observe(query_of(ended), std::min(ended.length, ended.max_tokens),
                       capped ? FinishKind::kCapped : FinishKind::kStopped);
  }
  return losses;
}

// The adaptive predictor's losses are below these shares of the window mean's.
void ExpectBetter(const Trace& trace, double p50_share, double p90_share) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Losses adaptive = LossesOf("adaptive", trace, seed);
    const Losses window = LossesOf("window", trace, seed);
    EXPECT_LT(adaptive.p50, p50_share * window.p50) << "seed " << seed;
    EXPECT_LT(adaptive.p90, p90_share * window.p90) << "seed " << seed;
  }
}

TEST(PinballLossTest, IsLowerOnSkewedLengths) {
  ExpectBetter(
      [](int, Draw& draw) {
        const int32_t prompt = draw.Prompt();
        return TracedOutput{prompt, 4096, draw.LogNormal(40 + 0.2 * prompt, 1), ""};
      },
      0.95, 0.8);
}

TEST(PinballLossTest, IsLowerWhereMostAreShortAndSomeLong) {
  ExpectBetter(
      [](int, Draw& draw) {
        const int32_t prompt = draw.Prompt();
        const bool is_short = draw.Uniform() < 0.7;
        return TracedOutput{prompt, 4096, draw.LogNormal(is_short ? 12 : 600, 0.3), ""};
      },
      0.8, 0.6);
}

TEST(PinballLossTest, IsLowerOnCappedLengths) {
  ExpectBetter(
      [](int, Draw& draw) {
        constexpr std::array<int32_t, 3> kLimits = {32, 128, 1024};
        const int32_t prompt = draw.Prompt();
        const auto limit = static_cast<size_t>(draw.Uniform() * kLimits.size());
        return TracedOutput{prompt, kLimits[limit], draw.LogNormal(150, 1), ""};
      },
      1, 0.6);
}

TEST(PinballLossTest, IsLowerWhereTheLoadChanges) {
  ExpectBetter(
      [](int i, Draw& draw) {
        const int32_t prompt = draw.Prompt();
        return TracedOutput{prompt, 4096, draw.LogNormal(i / 750 % 2 == 0 ? 50 : 400, 0.7), ""};
      },
      1, 0.85);
}

TEST(PinballLossTest, IsLowerWhereTheLoadDrifts) {
  ExpectBetter(
      [](int i, Draw& draw) {
        const int32_t prompt = draw.Prompt();
        const double median = 100 * std::exp(1.5 * std::sin(i / 400.0));
        return TracedOutput{prompt, 4096, draw.LogNormal(median, 0.7), ""};
      },
      1, 0.85);
}

TEST(PinballLossTest, IsLowerAmongTenants) {
  ExpectBetter(
      [](int, Draw& draw) {
        const int32_t prompt = draw.Prompt();
        const int tenant = static_cast<int>(draw.Uniform() * 4);
        return TracedOutput{prompt, 4096, draw.LogNormal(10 * std::pow(4, tenant), 0.4),
                            std::to_string(tenant)};
      },
      0.5, 0.4);
}

}  // namespace
}  // namespace tandem::output_length_predictor_test
