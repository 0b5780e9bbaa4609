// Steps of the sample model, measured as `tandem profile` measures them.
#include "engine/profile/step_session.h"

#include <string>

#include "engine/profile/measure_steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"

namespace tandem::step_session_test {
namespace {

using ::testing::HasSubstr;

StepSession::Options SampleOptions() {
  return {.model_dir = SampleModel(),
          .threads = 1,
          .max_step_tokens = 64,
          .max_sequences = 8,
          .max_context_tokens = 100};
}

TEST(StepSessionTest, EveryPlannedStepRuns) {
  const auto session = StepSession::Open(SampleOptions(), nullptr);
  ASSERT_TRUE(session.ok()) << session.status();
  const StepLimits& limits = (*session)->limits();
  EXPECT_EQ(limits.max_context_tokens, 96) << "whole blocks";
  EXPECT_EQ((*session)->layout().num_layers, (*session)->config().num_layers);
  for (const PlannedStep& step : PlanSteps(limits, PlanSize::kFull, 1)) {
    const absl::StatusOr<Duration> took = (*session)->Run(step.shape);
    ASSERT_TRUE(took.ok()) << took.status();
    EXPECT_GT(*took, Duration::zero());
  }
}

TEST(StepSessionTest, MoreWorkTakesLonger) {
  const auto session = StepSession::Open(SampleOptions(), nullptr);
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<PlannedStep> plan = {
      {{.prefill_tokens = 1}, SampleUse::kFit},
      {{.prefill_tokens = 64}, SampleUse::kFit},
      {{.sequences = 1, .context_tokens = 16}, SampleUse::kFit},
      {{.prefill_tokens = 56, .sequences = 8, .context_tokens = 96}, SampleUse::kGrid}};
  const auto measured = MeasureSteps(
      plan, {.repeats = 30}, [&session](const StepShape& shape) { return (*session)->Run(shape); },
      [](int64_t, int64_t) {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  const auto ms = [&measured](size_t i) { return MedianMs((*measured)[i].sample.ms); };
  EXPECT_GT(ms(1), 4 * ms(0)) << "64 tokens against one";
  EXPECT_GT(ms(3), 4 * ms(2)) << "64 rows against one";
}

TEST(StepSessionTest, RefusesWhatCannotBeMeasured) {
  StepSession::Options options = SampleOptions();
  options.model_dir = "/nowhere";
  EXPECT_THAT(std::string(StepSession::Open(options, nullptr).status().message()),
              HasSubstr("/nowhere"));
  options = SampleOptions();
  options.max_kv_bytes = 1 << 20;
  EXPECT_THAT(std::string(StepSession::Open(options, nullptr).status().message()),
              HasSubstr("more KV bytes"));
  options = SampleOptions();
  options.device = "tpu";
  EXPECT_FALSE(StepSession::Open(options, nullptr).ok());
}

}  // namespace
}  // namespace tandem::step_session_test
