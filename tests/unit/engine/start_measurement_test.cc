// What a worker measures before it serves: in bounded time, and never from cold runs.
#include "engine/profile/start_measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::start_measurement_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr StepLimits kStartLimits = {
    .max_step_tokens = 512, .max_sequences = 16, .max_context_tokens = 512};

StepModel Machine() {
  StepCoefficients c;
  c.alpha = {.floor_ms = 0, .base_ms = 1, .token_ms = 0.1, .pair_ms = 1e-5};
  c.beta = {.buckets = {{.max_sequences = 1, .base_ms = 1}},
            .sequence_ms = 0.1,
            .context_token_ms = 1e-4};
  return *StepModel::Create(c);
}

class StartMeasurementTest : public ::testing::Test {
 protected:
  StartMeasurement Measure(Duration max_time) {
    return Measure({.time = max_time, .step = max_time});
  }
  StartMeasurement Measure(const StartMeasurement::Bounds& bounds) {
    return StartMeasurement(PlanSteps(kStartLimits, PlanSize::kStart, 1), bounds,
                            [this](const StepShape& shape) { return Run(shape); });
  }
  static void RunAll(StartMeasurement& measurement) {
    while (measurement.Continue()) continue;
  }
  absl::StatusOr<Duration> Run(const StepShape& shape) {
    largest_ = std::max(largest_, shape.prefill_tokens + shape.sequences);
    ++runs_;
    double ms = machine_.Step(shape.features()).count() * slowness_;
    if (disturbance_ > 1) {
      ms *= std::pow(disturbance_, std::uniform_real_distribution(-1., 1.)(random_));
    }
    if (++runs_of_[shape.prefill_tokens * 100 + shape.sequences] == 1) ms *= first_run_;
    return std::chrono::duration_cast<Duration>(ModelTime(ms));
  }

  const StepModel machine_ = Machine();
  double slowness_ = 1;
  double first_run_ = 1;
  double disturbance_ = 1;  // a step takes up to so many times as long, or as short
  std::mt19937 random_{3};
  int32_t largest_ = 0;
  int64_t runs_ = 0;
  std::map<int32_t, int> runs_of_;
};

TEST_F(StartMeasurementTest, FindsTheModelOfTheMachine) {
  StartMeasurement measurement = Measure(seconds(100));
  RunAll(measurement);
  EXPECT_EQ(measurement.num_runs(), runs_);
  const auto fit = measurement.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->coefficients.alpha.token_ms, 0.1, 0.002);
  EXPECT_NEAR(fit->coefficients.beta.sequence_ms, 0.1, 0.01);
  EXPECT_EQ(fit->held_out.size(), 3u) << "prefills, decodes and both";
}

TEST_F(StartMeasurementTest, TheFirstRunOfAStepDoesNotCount) {
  first_run_ = 5;
  StartMeasurement measurement = Measure(seconds(100));
  RunAll(measurement);
  const auto fit = measurement.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->coefficients.alpha.token_ms, 0.1, 0.002);
}

TEST_F(StartMeasurementTest, AModelThatMispredictsOtherStepsByFarIsNotUsed) {
  disturbance_ = 1.3;
  StartMeasurement noisy = Measure(seconds(100));
  RunAll(noisy);
  EXPECT_TRUE(noisy.Fit().ok()) << noisy.Fit().status();
  disturbance_ = 30;
  StartMeasurement useless = Measure(seconds(100));
  RunAll(useless);
  EXPECT_TRUE(absl::IsFailedPrecondition(useless.Fit().status()));
  EXPECT_THAT(std::string(useless.Fit().status().message()), HasSubstr("more than 50%"));
}

TEST_F(StartMeasurementTest, TheTimeIsBoundedAndLargeStepsThatDoNotFitAreLeftOut) {
  slowness_ = 20;  // 512 tokens take a second
  StartMeasurement measurement = Measure(seconds(6));
  RunAll(measurement);
  EXPECT_LT(measurement.took(), seconds(7));
  EXPECT_LT(largest_, 512);
  const auto fit = measurement.Fit();
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->coefficients.alpha.token_ms, 2, 0.1);
}

TEST_F(StartMeasurementTest, NoStepIsMuchLongerThanARequestMayWait) {
  slowness_ = 20;  // 512 tokens take a second
  StartMeasurement measurement = Measure({.time = seconds(100), .step = milliseconds(300)});
  RunAll(measurement);
  EXPECT_GE(largest_, 64);
  EXPECT_LT(largest_, 256);
  EXPECT_TRUE(measurement.Fit().ok()) << measurement.Fit().status();
}

TEST_F(StartMeasurementTest, WhereTheTimeDoesNotSufficeNothingIsFitted) {
  slowness_ = 1000;
  StartMeasurement measurement = Measure(seconds(2));
  RunAll(measurement);
  EXPECT_LT(measurement.took(), seconds(10)) << "not much more than one step of one token";
  EXPECT_EQ(measurement.Fit().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StartMeasurementTest, WhatIsEndedEarlyHasTooFewRuns) {
  StartMeasurement measurement = Measure(seconds(100));
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(measurement.Continue());
  EXPECT_THAT(std::string(measurement.Fit().status().message()), HasSubstr("60 runs"));
}

TEST_F(StartMeasurementTest, AStepThatFailsEndsIt) {
  StartMeasurement measurement(
      PlanSteps(kStartLimits, PlanSize::kStart, 1), {.time = seconds(1), .step = seconds(1)},
      [](const StepShape&) -> absl::StatusOr<Duration> { return absl::InternalError("no GPU"); });
  EXPECT_FALSE(measurement.Continue());
  EXPECT_THAT(std::string(measurement.Fit().status().message()), HasSubstr("no GPU"));
}

}  // namespace
}  // namespace tandem::start_measurement_test
