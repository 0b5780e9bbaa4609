#include "scheduler/latency_model/step_fit.h"

#include <algorithm>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/latency_model/component_fit.h"

namespace tandem::step_fit_test {
namespace {

using ::testing::HasSubstr;

StepCoefficients Truth() {
  StepCoefficients c;
  c.alpha = {.floor_ms = 6, .base_ms = 2, .token_ms = 0.05, .pair_ms = 2e-5};
  c.beta = {.buckets = {{.max_sequences = 64, .base_ms = 5}},
            .sequence_ms = 0.2,
            .context_token_ms = 5e-4};
  return c;
}

// Measures a machine that has known coefficients, with noise.
class MeasuredMachine {
 public:
  explicit MeasuredMachine(const StepCoefficients& truth, double noise = 0.02)
      : model_(StepModel::Create(truth).value()), noise_(1.0, noise) {}

  void Measure(const StepFeatures& features, SampleUse use) {
    StepSample& sample = samples.emplace_back();
    sample.features = features;
    sample.use = use;
    for (int i = 0; i < 30; ++i) {
      const double delayed = i % 10 == 0 ? 3.0 : 1.0;  // by something else
      sample.ms.push_back(model_.Step(features).count() * std::max(0.5, noise_(random_)) * delayed);
    }
  }
  void MeasureAll(SampleUse use, int32_t shift) {
    for (const int32_t tokens : {8, 16, 32, 64, 96, 128, 192, 256, 384, 512}) {
      for (const int32_t cached : {0, 1000}) Measure(Prefill(tokens + shift, cached), use);
    }
    for (const int32_t sequences : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      for (const int32_t context : {16, 300, 1500}) {
        Measure({.decode_sequences = sequences,
                 .decode_context = int64_t{sequences} * (context + shift)},
                use);
      }
    }
  }
  static StepFeatures Prefill(int32_t tokens, int32_t cached) {
    return {.prefill_tokens = tokens, .prefill_pairs = CausalPairs(cached, cached + tokens)};
  }

  std::vector<StepSample> samples;

 private:
  const StepModel model_;
  std::mt19937_64 random_{11};
  std::normal_distribution<double> noise_;
};

TEST(StepFitTest, FindsTheCoefficientsOfAMachineAndTheirIntervals) {
  MeasuredMachine machine(Truth());
  machine.MeasureAll(SampleUse::kFit, 0);
  machine.MeasureAll(SampleUse::kHeldOut, 5);
  const absl::StatusOr<StepFit> fit = FitSteps(machine.samples, 1);
  ASSERT_TRUE(fit.ok()) << fit.status();
  const StepCoefficients& c = fit->coefficients;
  EXPECT_NEAR(c.alpha.floor_ms, 6, 0.3);
  EXPECT_NEAR(c.alpha.token_ms, 0.05, 0.003);
  EXPECT_NEAR(c.alpha.pair_ms, 2e-5, 2e-6);
  ASSERT_EQ(c.beta.buckets.size(), 1u) << "one bucket explains it all";
  EXPECT_NEAR(c.beta.buckets[0].base_ms, 5, 0.2);
  EXPECT_NEAR(c.beta.sequence_ms, 0.2, 0.02);
  EXPECT_NEAR(c.beta.context_token_ms, 5e-4, 3e-5);

  const auto named = [&fit](const std::string& name) {
    return *std::find_if(fit->intervals.begin(), fit->intervals.end(),
                         [&name](const FittedCoefficient& one) { return one.name == name; });
  };
  for (const FittedCoefficient& one : fit->intervals) {
    EXPECT_LE(one.low, one.value * 1.02) << one.name;
    EXPECT_GE(one.high, one.value * 0.98) << one.name;
  }
  EXPECT_LT(named("alpha.a1").low, 0.05);
  EXPECT_GT(named("alpha.a1").high, 0.05);
  EXPECT_LT(named("alpha.a1").high - named("alpha.a1").low, 0.01);
  ASSERT_EQ(fit->held_out.size(), 2u);
  for (const ComponentError& error : fit->held_out) {
    EXPECT_LT(error.mean, 0.03) << error.name;
    EXPECT_GT(error.samples, 10) << error.name;
    EXPECT_NEAR(error.spread, 0.02, 0.01) << "repeats that were delayed do not count";
  }
}

TEST(StepFitTest, FindsTheBucketsOfAMachineThatRunsGraphs) {
  StepCoefficients truth = Truth();
  truth.beta.buckets = {};
  double base = 2;
  for (int32_t size = 1; size <= 64; size *= 2) {
    truth.beta.buckets.push_back({.max_sequences = size, .base_ms = base});
    base *= 1.6;
  }
  MeasuredMachine machine(truth);
  machine.MeasureAll(SampleUse::kFit, 0);
  const absl::StatusOr<StepFit> fit = FitSteps(machine.samples, 1);
  ASSERT_TRUE(fit.ok()) << fit.status();
  ASSERT_EQ(fit->coefficients.beta.buckets.size(), 7u);
  EXPECT_NEAR(fit->coefficients.beta.buckets[5].base_ms, truth.beta.buckets[5].base_ms, 2);
}

TEST(StepFitTest, AMachineWithoutAFloorGetsNone) {
  StepCoefficients truth = Truth();
  truth.alpha.floor_ms = 0;
  MeasuredMachine machine(truth);
  machine.MeasureAll(SampleUse::kFit, 0);
  EXPECT_EQ(FitSteps(machine.samples, 1)->coefficients.alpha.floor_ms, 0);
}

TEST(StepFitTest, TheGammaTableGivesBackWhatWasMeasured) {
  StepCoefficients truth = Truth();
  MeasuredMachine machine(truth, 0.001);
  machine.MeasureAll(SampleUse::kFit, 0);
  for (const int32_t tokens : {32, 128, 448}) {
    for (const int32_t sequences : {1, 8, 64}) {
      for (const int32_t context : {100, 1000}) {
        StepFeatures f = MeasuredMachine::Prefill(tokens, 0);
        f.decode_sequences = sequences;
        f.decode_context = int64_t{sequences} * context;
        machine.Measure(f, SampleUse::kGrid);
        f.prefill_tokens += 10;
        f.prefill_pairs = CausalPairs(0, f.prefill_tokens);
        machine.Measure(f, SampleUse::kHeldOut);
      }
    }
  }
  const absl::StatusOr<StepFit> fit = FitSteps(machine.samples, 1);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->coefficients.gamma.gamma_ms.size(), 18u);
  const StepModel model = StepModel::Create(fit->coefficients).value();
  EXPECT_NEAR(model.GammaMs(128, 8, 8000), 0.05 + 2e-5 * 129 / 2, 2e-3);
  ASSERT_EQ(fit->held_out.size(), 1u);
  EXPECT_EQ(fit->held_out[0].name, "mixed");
  EXPECT_LT(fit->held_out[0].max, 0.05);
}

TEST(StepFitTest, TheKneeOfAStepCurveIsFoundWhereThereIsOne) {
  std::vector<CurvePoint> flat_then_rising, straight;
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(1.0, 0.01);
  for (const double tokens : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256}) {
    flat_then_rising.push_back({tokens, (5 + 0.1 * std::max(0.0, tokens - 48)) * noise(random)});
    straight.push_back({tokens, (5 + 0.1 * tokens) * noise(random)});
  }
  const std::optional<double> knee = FindKnee(flat_then_rising);
  ASSERT_TRUE(knee.has_value());
  EXPECT_EQ(*knee, 48);
  EXPECT_FALSE(FindKnee(straight)) << "a straight line has none";
  EXPECT_FALSE(FindKnee({})) << "nothing was measured";
}

TEST(StepFitTest, TheKneeHasAnInterval) {
  StepCoefficients truth = Truth();
  truth.gamma = {
      .tokens = {48, 512}, .sequences = {1}, .context = {0}, .gamma_ms = {0, 40.0 / 512}};
  truth.alpha = {.floor_ms = 5, .base_ms = 0, .token_ms = 0.08, .pair_ms = 0};
  MeasuredMachine machine(truth);
  machine.MeasureAll(SampleUse::kFit, 0);
  for (const int32_t tokens : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384}) {
    machine.Measure({.prefill_tokens = tokens, .decode_sequences = 1, .decode_context = 16},
                    SampleUse::kCurve);
  }
  const absl::StatusOr<StepFit> fit = FitSteps(machine.samples, 1);
  ASSERT_TRUE(fit.ok()) << fit.status();
  const std::optional<Knee>& knee = fit->coefficients.batch_thresh;
  ASSERT_TRUE(knee.has_value());
  EXPECT_GE(knee->tokens, 33);
  EXPECT_LE(knee->tokens, 97);
  EXPECT_LE(knee->low, knee->tokens);
  EXPECT_GE(knee->high, knee->tokens);
}

TEST(StepFitTest, RefusesWhatCannotBeFitted) {
  EXPECT_THAT(std::string(FitSteps({}, 1).status().message()), HasSubstr("there are 0 and 0"));
  MeasuredMachine machine(Truth());
  machine.MeasureAll(SampleUse::kFit, 0);
  auto samples = machine.samples;
  samples[3].ms[2] = -1;
  EXPECT_THAT(std::string(FitSteps(samples, 1).status().message()), HasSubstr("no time above 0"));
  samples = machine.samples;
  samples.push_back(samples.back());
  samples.back().use = SampleUse::kGrid;
  EXPECT_THAT(std::string(FitSteps(samples, 1).status().message()),
              HasSubstr("needs prefill tokens and decodes"));
}

TEST(StepFitTest, TheSpreadIgnoresAFewDelays) {
  std::vector<double> ms(100, 10.0);
  for (size_t i = 0; i < 10; ++i) ms[i] = 100;
  EXPECT_EQ(RelativeSpread(ms), 0);
  EXPECT_EQ(MedianMs(ms), 10);
  EXPECT_EQ(MedianMs(std::vector<double>{1, 2, 4, 8}), 3);
}

}  // namespace
}  // namespace tandem::step_fit_test
