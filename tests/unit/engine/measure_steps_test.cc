#include "engine/profile/measure_steps.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/status.h"
#include "engine/profile/step_plan.h"
#include "gtest/gtest.h"

namespace tandem::measure_steps_test {
namespace {

using std::chrono::microseconds;

constexpr StepLimits kLimits = {
    .max_step_tokens = 256, .max_sequences = 16, .max_context_tokens = 512};

std::vector<PlannedStep> ThreeSteps() {
  return {{{.prefill_tokens = 1}, SampleUse::kFit},
          {{.prefill_tokens = 2}, SampleUse::kFit},
          {{.prefill_tokens = 3}, SampleUse::kHeldOut}};
}

TEST(StepPlanTest, EveryStepIsWithinTheLimits) {
  for (const PlanSize size : {PlanSize::kStart, PlanSize::kQuick, PlanSize::kFull}) {
    for (const PlannedStep& step : PlanSteps(kLimits, size, 5)) {
      const StepShape& s = step.shape;
      EXPECT_GT(s.prefill_tokens + s.sequences, 0);
      EXPECT_LE(s.prefill_tokens + s.sequences, kLimits.max_step_tokens);
      EXPECT_LE(s.sequences, kLimits.max_sequences);
      EXPECT_LE(s.context_tokens, kLimits.max_context_tokens);
      EXPECT_LE(s.cached_tokens, kLimits.max_context_tokens);
      EXPECT_EQ(s.sequences > 0, s.context_tokens > 0);
    }
  }
}

TEST(StepPlanTest, APlanCanBeFitted) {
  for (const PlanSize size : {PlanSize::kStart, PlanSize::kQuick, PlanSize::kFull}) {
    std::vector<StepSample> samples;
    for (const PlannedStep& step : PlanSteps(kLimits, size, 5)) {
      StepSample& sample = samples.emplace_back();
      sample.features = step.shape.features();
      sample.use = step.use;
      const StepFeatures& f = sample.features;
      sample.ms = {2 + 0.05 * f.prefill_tokens + 1e-5 * static_cast<double>(f.prefill_pairs) +
                   0.3 * f.decode_sequences + 1e-3 * static_cast<double>(f.decode_context)};
    }
    const absl::StatusOr<StepFit> fit = FitSteps(samples, 1);
    ASSERT_TRUE(fit.ok()) << fit.status();
    EXPECT_NEAR(fit->coefficients.alpha.token_ms, 0.05, 1e-4);
    EXPECT_NEAR(fit->coefficients.alpha.pair_ms, 1e-5, 1e-7);
    EXPECT_NEAR(fit->coefficients.beta.sequence_ms, 0.3, 1e-3);
    EXPECT_NEAR(fit->coefficients.beta.context_token_ms, 1e-3, 1e-5);
    EXPECT_EQ(fit->coefficients.gamma.empty(), size == PlanSize::kStart);
    ASSERT_EQ(fit->held_out.size(), 3u);
    for (const ComponentError& error : fit->held_out) {
      EXPECT_GE(error.samples, size == PlanSize::kStart ? 4 : 8);
      EXPECT_LT(error.max, 0.02) << error.name;
    }
  }
}

TEST(StepPlanTest, TheSeedDecidesWhatIsRandom) {
  const auto shapes = [](uint64_t seed) {
    std::vector<StepShape> all;
    for (const PlannedStep& step : PlanSteps(kLimits, PlanSize::kFull, seed)) {
      all.push_back(step.shape);
    }
    return all;
  };
  EXPECT_EQ(shapes(1), shapes(1));
  EXPECT_NE(shapes(1), shapes(2));
}

TEST(StepShapeTest, ItsFeaturesCountTheCachedPrefix) {
  const StepFeatures f =
      StepShape{.prefill_tokens = 3, .cached_tokens = 10, .sequences = 2, .context_tokens = 7}
          .features();
  EXPECT_EQ(f.prefill_tokens, 3);
  EXPECT_EQ(f.prefill_pairs, 11 + 12 + 13);
  EXPECT_EQ(f.decode_sequences, 2);
  EXPECT_EQ(f.decode_context, 14);
}

TEST(MeasureStepsTest, RoundsRunEachStepOnceInAnOrderOfTheirOwn) {
  std::vector<int32_t> order;
  const auto run = [&order](const StepShape& shape) -> absl::StatusOr<Duration> {
    order.push_back(shape.prefill_tokens);
    return microseconds(100 * shape.prefill_tokens);
  };
  int64_t last_total = 0;
  const auto measured = MeasureSteps(ThreeSteps(), {.repeats = 30, .warm_ups = 2}, run,
                                     [&last_total](int64_t done, int64_t total) {
                                       EXPECT_LE(done, total);
                                       last_total = total;
                                     });
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(order.size(), 3u * 32u);
  EXPECT_EQ(last_total, 3 * 32);
  std::set<std::vector<int32_t>> orders;
  for (size_t round = 0; round < 32; ++round) {
    std::vector<int32_t> one(order.begin() + static_cast<ptrdiff_t>(3 * round),
                             order.begin() + static_cast<ptrdiff_t>(3 * round + 3));
    orders.insert(one);
    std::sort(one.begin(), one.end());
    EXPECT_EQ(one, (std::vector<int32_t>{1, 2, 3}));
  }
  EXPECT_GT(orders.size(), 3u);
  for (const MeasuredStep& step : *measured) {
    EXPECT_EQ(step.sample.ms.size(), 30u) << "warm-ups do not count";
    EXPECT_DOUBLE_EQ(step.sample.ms[0], 0.1 * step.step.shape.prefill_tokens);
    EXPECT_FALSE(step.noisy);
  }
}

TEST(MeasureStepsTest, WhatIsNoisyIsMeasuredAgainAndTheCalmestAttemptCounts) {
  std::map<int32_t, int> runs;
  // The first step is calm from its second attempt on, the second never.
  const auto run = [&runs](const StepShape& shape) -> absl::StatusOr<Duration> {
    const int count = runs[shape.prefill_tokens]++;
    const bool noisy = shape.prefill_tokens == 2 || (shape.prefill_tokens == 1 && count < 30);
    return microseconds(1000 + (noisy ? 100 * (count % 7) : 0));
  };
  const auto measured = MeasureSteps(ThreeSteps(), {.repeats = 30, .warm_ups = 0, .attempts = 3},
                                     run, [](int64_t, int64_t) {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(runs[1], 60);
  EXPECT_EQ(runs[2], 90);
  EXPECT_EQ(runs[3], 30);
  EXPECT_FALSE((*measured)[0].noisy);
  EXPECT_EQ(RelativeSpread((*measured)[0].sample.ms), 0);
  EXPECT_TRUE((*measured)[1].noisy);
  EXPECT_EQ((*measured)[1].sample.ms.size(), 30u);
}

TEST(MeasureStepsTest, NothingIsMeasuredAgainBeyondTheTimeLimit) {
  int runs = 0;
  const auto run = [&runs](const StepShape&) -> absl::StatusOr<Duration> {
    return microseconds(1000 + 100 * (runs++ % 7));
  };
  // One attempt takes some 117 ms, and two take more than 200.
  const auto measured = MeasureSteps(
      ThreeSteps(),
      {.repeats = 30, .warm_ups = 0, .attempts = 5, .max_time = std::chrono::milliseconds(200)},
      run, [](int64_t, int64_t) {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(runs, 90);
  EXPECT_TRUE((*measured)[0].noisy) << "it is flagged all the same";
}

TEST(MeasureStepsTest, AnErrorOfAStepEndsTheMeasurement) {
  int runs = 0;
  const auto run = [&runs](const StepShape&) -> absl::StatusOr<Duration> {
    if (++runs == 5) return Internal("the device is gone");
    return microseconds(1);
  };
  const auto measured = MeasureSteps(ThreeSteps(), {}, run, [](int64_t, int64_t) {});
  EXPECT_EQ(measured.status().message(), "the device is gone");
  EXPECT_EQ(runs, 5);
}

}  // namespace
}  // namespace tandem::measure_steps_test
