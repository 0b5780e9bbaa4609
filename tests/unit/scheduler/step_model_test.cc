#include "scheduler/latency_model/step_model.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/latency_model/link_model.h"

namespace tandem::step_model_test {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StepCoefficients WorkedExample() {
  StepCoefficients c;
  c.alpha = {.floor_ms = 4, .base_ms = 2, .token_ms = 0.05, .pair_ms = 1e-4};
  c.beta = {.buckets = {{.max_sequences = 1, .base_ms = 3}, {.max_sequences = 8, .base_ms = 5}},
            .sequence_ms = 0.5,
            .context_token_ms = 1e-3};
  return c;
}

StepModel Make(const StepCoefficients& coefficients) {
  absl::StatusOr<StepModel> model = StepModel::Create(coefficients);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.value_or(StepModel());
}

TEST(StepModelTest, APrefillTakesItsFloorOrItsTokensAndThenItsPairs) {
  const StepModel model = Make(WorkedExample());
  // max(4, 2 + 0.05 * 20) + 1e-4 * 210 = 4.021
  EXPECT_NEAR(model.Step({.prefill_tokens = 20, .prefill_pairs = 210}).count(), 4.021, 1e-12);
  // max(4, 2 + 0.05 * 100) + 1e-4 * 5050 = 7.505
  EXPECT_NEAR(model.Step({.prefill_tokens = 100, .prefill_pairs = 5050}).count(), 7.505, 1e-12);
}

TEST(StepModelTest, ADecodeTakesTheBaseOfItsBucket) {
  const StepModel model = Make(WorkedExample());
  // 3 + 0.5 * 1 + 1e-3 * 512 and 5 + 0.5 * 2 + 1e-3 * 600
  EXPECT_NEAR(model.Step({.decode_sequences = 1, .decode_context = 512}).count(), 4.012, 1e-12);
  EXPECT_NEAR(model.Step({.decode_sequences = 2, .decode_context = 600}).count(), 6.6, 1e-12);
  // The last bucket holds larger batches, too: 5 + 0.5 * 20
  EXPECT_NEAR(model.Step({.decode_sequences = 20}).count(), 15, 1e-12);
  EXPECT_EQ(model.Step({}).count(), 0) << "an empty step takes no time";
}

TEST(StepModelTest, WithoutAGammaTableATokenBesideDecodesCostsWhatAlphaSays) {
  const StepModel model = Make(WorkedExample());
  // 6.6 for the decodes, 0.05 * 100 for the tokens, 1e-4 * 5050 for the pairs
  EXPECT_NEAR(model
                  .Step({.prefill_tokens = 100,
                         .prefill_pairs = 5050,
                         .decode_sequences = 2,
                         .decode_context = 600})
                  .count(),
              12.105, 1e-12);
  EXPECT_NEAR(model.GammaMs(100, 2, 600), (12.105 - 6.6) / 100, 1e-12);
}

TEST(StepModelTest, AGammaTableIsInterpolatedInAllDirections) {
  StepCoefficients c = WorkedExample();
  c.alpha = {.token_ms = 0.5};
  c.beta.context_token_ms = 0;
  c.gamma = {.tokens = {10, 20},
             .sequences = {2, 4},
             .context = {0, 100},
             // N = 10: 10 ms at B = 2, 20 ms at B = 4; N = 20: 40 ms at B = 2, 60 ms at B = 4
             .gamma_ms = {1, 1, 2, 2, 2, 2, 3, 3}};
  const StepModel model = Make(c);
  const auto added = [&model](double tokens, double sequences) {
    return model.StepMs(tokens, 0, sequences, 50) - model.StepMs(0, 0, sequences, 50);
  };
  EXPECT_NEAR(added(10, 2), 10, 1e-9);
  EXPECT_NEAR(added(20, 4), 60, 1e-9);
  EXPECT_NEAR(added(15, 2), 25, 1e-9) << "between 10 and 40 ms";
  EXPECT_NEAR(added(10, 3), 15, 1e-9) << "between 10 and 20 ms";
  EXPECT_NEAR(added(15, 3), 32.5, 1e-9) << "in the middle of all four";
  EXPECT_NEAR(added(5, 2), 5, 1e-9) << "proportional below the table";
  EXPECT_NEAR(added(40, 2), 50, 1e-9) << "0.5 ms for each token above the table";
  EXPECT_NEAR(added(10, 64), 20, 1e-9) << "constant beyond the largest batch";
}

TEST(StepModelTest, GammaGivesBackWhatWasMeasured) {
  StepCoefficients c = WorkedExample();
  c.gamma = {.tokens = {64}, .sequences = {4}, .context = {512}, .gamma_ms = {0.0625}};
  EXPECT_NEAR(Make(c).GammaMs(64, 4, 2048), 0.0625, 1e-12);
}

TEST(StepModelTest, RefusesWhatIsNoCost) {
  const auto refused = [](auto change) {
    StepCoefficients c = WorkedExample();
    change(c);
    return std::string(StepModel::Create(c).status().message());
  };
  EXPECT_THAT(refused([](auto& c) { c.alpha.token_ms = -1; }), HasSubstr("alpha.a1 is -1"));
  EXPECT_THAT(refused([](auto& c) { c.alpha.pair_ms = kNan; }), HasSubstr("alpha.a2 is nan"));
  EXPECT_THAT(refused([](auto& c) { c.alpha.floor_ms = INFINITY; }), HasSubstr("alpha.floor"));
  EXPECT_THAT(refused([](auto& c) { c.beta.context_token_ms = -2; }), HasSubstr("beta.b2 is -2"));
  EXPECT_THAT(refused([](auto& c) { c.beta.buckets[1].base_ms = 1; }), HasSubstr("must not fall"));
  EXPECT_THAT(refused([](auto& c) { c.beta.buckets[1].max_sequences = 1; }),
              HasSubstr("ends must rise"));
  EXPECT_THAT(refused([](auto& c) { c.batch_thresh = Knee{.tokens = 8, .low = 9, .high = 10}; }),
              HasSubstr("batch_thresh is 8 in [9, 10]"));
  EXPECT_THAT(refused([](auto& c) { c.gamma.tokens = {1}; }), HasSubstr("no values of sequences"));
  EXPECT_THAT(refused([](auto& c) {
                c.gamma = {.tokens = {1}, .sequences = {1}, .context = {0}, .gamma_ms = {1, 2}};
              }),
              HasSubstr("has 2 cells"));
  EXPECT_THAT(refused([](auto& c) {
                c.gamma = {.tokens = {1}, .sequences = {1}, .context = {0}, .gamma_ms = {kNan}};
              }),
              HasSubstr("a cell of nan"));
}

// Any coefficients, measured with noise, and any table.
StepModel AnyModel(std::mt19937_64& random) {
  const auto any = [&random](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  StepCoefficients c;
  c.alpha = {.floor_ms = any(5), .base_ms = any(5), .token_ms = any(0.1), .pair_ms = any(1e-4)};
  c.beta.buckets = {{.max_sequences = 2, .base_ms = any(3)}};
  c.beta.buckets.push_back({.max_sequences = 8, .base_ms = 3 + any(3)});
  c.beta.sequence_ms = any(1);
  c.beta.context_token_ms = any(1e-3);
  if (any(1) < 0.7) {
    c.gamma.tokens = {16, 64, 256};
    c.gamma.sequences = {1, 4, 16};
    c.gamma.context = {100, 1000};
    for (int i = 0; i < 18; ++i) c.gamma.gamma_ms.push_back(any(0.2));
  }
  return Make(c);
}

TEST(StepModelTest, NoStepGetsFasterWhenItDoesMore) {
  std::mt19937_64 random(7);
  const auto pick = [&random](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (int i = 0; i < 20000; ++i) {
    const StepModel model = AnyModel(random);
    StepFeatures less{.prefill_tokens = static_cast<int32_t>(pick(400)),
                      .prefill_pairs = pick(100000),
                      .decode_sequences = static_cast<int32_t>(pick(20)),
                      .decode_context = pick(2000)};
    StepFeatures more = less;
    more.prefill_tokens += static_cast<int32_t>(pick(100));
    more.prefill_pairs += pick(10000);
    more.decode_sequences += static_cast<int32_t>(pick(4));
    more.decode_context += pick(500);
    const double before = model.Step(less).count();
    const double after = model.Step(more).count();
    ASSERT_GE(before, 0);
    ASSERT_TRUE(std::isfinite(after));
    ASSERT_LE(before, after + 1e-9) << less.prefill_tokens << " " << less.decode_sequences << " "
                                    << less.decode_context << " to " << more.prefill_tokens << " "
                                    << more.decode_sequences << " " << more.decode_context;
  }
}

LinkModel Link() {
  return {.setup = ModelTime(2), .operation = ModelTime(0.01), .bytes_per_second = 1e6};
}

TEST(LinkModelTest, ATransferTakesSetupOperationsAndBytes) {
  // 2 + 100 * 0.01 + 5000 / 1e6 s = 8 ms
  EXPECT_NEAR(Link().Transfer(5000, 100, 1).count(), 8, 1e-12);
  EXPECT_EQ(Link().Transfer(0, 0, 1).count(), 0) << "nothing moves";
}

TEST(LinkModelTest, StreamsShareWhatWasMeasuredOfThemTogether) {
  LinkModel link = Link();
  EXPECT_NEAR(link.Share(4), 0.25e6, 1e-6) << "without a measurement the total stays the same";
  link.contention = {{.streams = 2, .total = 1.5}, {.streams = 4, .total = 2}};
  ASSERT_TRUE(link.Validate().ok());
  EXPECT_NEAR(link.Share(2), 0.75e6, 1e-6);
  EXPECT_NEAR(link.Share(3), 1.75e6 / 3, 1e-6) << "between the measured counts";
  EXPECT_NEAR(link.Share(8), 0.25e6, 1e-6) << "the total stays beyond them";
}

TEST(LinkModelTest, RefusesWhatIsNoLink) {
  const auto refused = [](auto change) {
    LinkModel link = Link();
    change(link);
    return std::string(link.Validate().message());
  };
  EXPECT_THAT(refused([](auto& l) { l.bytes_per_second = 0; }), HasSubstr("bandwidth of 0"));
  EXPECT_THAT(refused([](auto& l) { l.bytes_per_second = kNan; }), HasSubstr("bandwidth of nan"));
  EXPECT_THAT(refused([](auto& l) { l.setup = ModelTime(-1); }), HasSubstr("setup -1"));
  EXPECT_THAT(refused([](auto& l) { l.contention = {{.streams = 1, .total = 1}}; }),
              HasSubstr("counts must rise"));
  EXPECT_THAT(refused([](auto& l) { l.contention = {{.streams = 2, .total = 2.5}}; }),
              HasSubstr("share must not rise"));
}

TEST(LinkModelTest, APrefillHidesAllButTheLastPartOfAFasterTransfer) {
  // 10 parts: the transfer of 20 ms ends one part of 2 ms after the prefill of 100 ms.
  EXPECT_NEAR(ExposedTransfer(ModelTime(20), ModelTime(100), 10).count(), 2, 1e-12);
  // A transfer of 200 ms begins after the first part of 10 ms: 210 - 100.
  EXPECT_NEAR(ExposedTransfer(ModelTime(200), ModelTime(100), 10).count(), 110, 1e-12);
  EXPECT_NEAR(ExposedTransfer(ModelTime(20), ModelTime(100), 1).count(), 20, 1e-12)
      << "one part is sent when all is computed";
}

}  // namespace
}  // namespace tandem::step_model_test
