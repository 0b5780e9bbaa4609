// A worker's model beside the steps that it runs: when it is changed, and when it is not.
#include "scheduler/latency_model/step_costs.h"

#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::step_costs_test {
namespace {

using ::testing::HasSubstr;

StepCoefficients Machine() {
  StepCoefficients c;
  c.alpha = {.floor_ms = 0, .base_ms = 1, .token_ms = 0.05, .pair_ms = 1e-5};
  c.beta = {.buckets = {{.max_sequences = 1, .base_ms = 1}},
            .sequence_ms = 0.1,
            .context_token_ms = 2e-4};
  return c;
}

class StepCostsTest : public ::testing::Test {
 protected:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  StepFeatures AnyPrefill() {
    const int32_t tokens = Pick(32, 512);
    return {.prefill_tokens = tokens, .prefill_pairs = CausalPairs(0, tokens)};
  }
  StepFeatures AnyDecode() {
    const int32_t sequences = Pick(1, 16);
    return {.decode_sequences = sequences, .decode_context = int64_t{sequences} * Pick(64, 1024)};
  }

  // The noise changes no mean.
  void RunFor(const StepFeatures& step, double ms) {
    std::normal_distribution<double> noise(-noise_ * noise_ / 2, noise_);
    ms *= std::exp(noise(random_));
    costs_.Observe(step, std::chrono::duration_cast<Duration>(ModelTime(ms)));
  }
  void Run(const StepFeatures& step, double factor) {
    RunFor(step, machine_.Step(step).count() * factor);
  }
  // A prompt beside decodes, each of which takes so many times what the machine's model says.
  void RunMixed(double prefill, double decode) {
    const StepFeatures decodes = AnyDecode();
    StepFeatures step = AnyPrefill();
    step.decode_sequences = decodes.decode_sequences;
    step.decode_context = decodes.decode_context;
    const double decode_ms = machine_.Step(decodes).count();
    RunFor(step, prefill * (machine_.Step(step).count() - decode_ms) + decode * decode_ms);
  }
  // A prompt, then its output.
  void RunRequests(int requests, double prefill = 1.0, double decode = 1.0, int outputs = 8) {
    for (int i = 0; i < requests; ++i) {
      Run(AnyPrefill(), prefill);
      for (int j = 0; j < outputs; ++j) Run(AnyDecode(), decode);
    }
  }
  void RunDecodes(int steps, double factor = 1.0) {
    for (int i = 0; i < steps; ++i) Run(AnyDecode(), factor);
  }
  double PredictedFactor(const StepFeatures& step) {
    return costs_.state().model->Step(step) / machine_.Step(step);
  }
  void ExpectFactors(double prefill, double decode) {
    EXPECT_NEAR(PredictedFactor(AnyPrefill()), prefill, 0.1 * prefill);
    EXPECT_NEAR(PredictedFactor(AnyDecode()), decode, 0.1 * decode);
  }
  void Know() { ASSERT_TRUE(costs_.SetModel(Machine(), CostSource::kFile, 0.07).ok()); }

  const StepModel machine_ = *StepModel::Create(Machine());
  std::mt19937_64 random_{7};
  double noise_ = 0.05;
  StepCosts costs_{{}};
};

TEST_F(StepCostsTest, KnowsNothingBeforeItWasToldOrLearned) {
  EXPECT_EQ(costs_.state().model, nullptr);
  EXPECT_EQ(costs_.state().source, CostSource::kNone);
  EXPECT_EQ(costs_.state().revision, 0u);
}

TEST_F(StepCostsTest, AModelThatWasGivenIsUsedWithTheErrorThatIsKnownOfIt) {
  Know();
  EXPECT_EQ(costs_.state().source, CostSource::kFile);
  EXPECT_EQ(costs_.state().error, 0.07);
  EXPECT_EQ(costs_.state().drift, 0);
  ExpectFactors(1, 1);
}

TEST_F(StepCostsTest, AModelThatIsNoneIsRefusedAndChangesNothing) {
  Know();
  StepCoefficients bad = Machine();
  bad.alpha.token_ms = -1;
  EXPECT_THAT(std::string(costs_.SetModel(bad, CostSource::kFile, 0).message()), HasSubstr("-1"));
  EXPECT_EQ(costs_.state().revision, 1u);
}

TEST_F(StepCostsTest, NoiseChangesTheModelByLittle) {
  for (const auto& [noise, revisions] : {std::pair(0.05, 0), std::pair(0.2, 8)}) {
    noise_ = noise;
    Know();
    const uint64_t revision = costs_.state().revision;
    for (int i = 0; i < 10; ++i) {
      RunRequests(100);
      EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1, 0.25 * noise);
      EXPECT_NEAR(PredictedFactor(AnyDecode()), 1, 0.15 * noise);
    }
    EXPECT_LE(costs_.state().revision, revision + revisions) << noise << ": in 9000 steps";
    EXPECT_NEAR(costs_.state().drift, 1.0, 0.1);
    EXPECT_NEAR(costs_.state().error, 0.8 * noise, 0.4 * noise);
  }
}

TEST_F(StepCostsTest, SingleStepsThatTakeLongChangeLittle) {
  Know();
  for (int i = 0; i < 20; ++i) {
    RunRequests(100);
    Run(AnyDecode(), 30);
    Run(AnyPrefill(), 30);
    EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1, 0.03);
    EXPECT_NEAR(PredictedFactor(AnyDecode()), 1, 0.01);
  }
}

// An output takes the sum of many steps, some of which wait for what else the machine does.
TEST_F(StepCostsTest, StepsAreOnAverageAsLongAsTheModelSays) {
  Know();
  const auto run = [this](double usual, double held_up) {
    for (int i = 0; i < 1500; ++i) Run(AnyDecode(), i % 5 == 0 ? held_up : usual);
  };
  run(0.9, 2.4);
  EXPECT_NEAR(PredictedFactor(AnyDecode()), 0.8 * 0.9 + 0.2 * 2.4, 0.06);
  const uint64_t revision = costs_.state().revision;
  run(0.9, 2.4);
  EXPECT_EQ(costs_.state().revision, revision) << "nothing has changed since";
  run(0.9, 0.9);
  EXPECT_NEAR(PredictedFactor(AnyDecode()), 0.9, 0.03) << "nothing holds steps up any longer";
}

TEST_F(StepCostsTest, SmallChangesThatLastAreFollowed) {
  Know();
  RunRequests(100);
  RunRequests(400, 1.08, 0.93);
  EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1.08, 0.03);
  EXPECT_NEAR(PredictedFactor(AnyDecode()), 0.93, 0.03);
}

// In service each sequence's token is delivered, which the profile's steps did not do.
TEST_F(StepCostsTest, DecodesOfSeveralSequencesMayTakeAsMuchLongerAsTheyDo) {
  Know();
  StepCoefficients served = Machine();
  served.beta.buckets[0].base_ms = 0.8;
  served.beta.sequence_ms = 0.35;
  const auto actual = StepModel::Create(served);
  const auto factor = [&](int32_t sequences, int64_t context) {
    const StepFeatures step = {.decode_sequences = sequences,
                               .decode_context = sequences * context};
    return costs_.state().model->Step(step) / actual->Step(step);
  };
  for (int i = 0; i < 1000; ++i) {
    if (i % 20 == 0) Run(AnyPrefill(), 1);
    const int32_t sequences = Pick(1, 4);
    const StepFeatures step = {.decode_sequences = sequences,
                               .decode_context = int64_t{sequences} * Pick(64, 512)};
    RunFor(step, actual->Step(step).count());
  }
  for (const int32_t sequences : {1, 2, 4}) {
    EXPECT_NEAR(factor(sequences, 100), 1, 0.04) << sequences;
    EXPECT_NEAR(factor(sequences, 500), 1, 0.04) << sequences;
  }
  EXPECT_NEAR(factor(16, 500), 1, 0.15) << "of batches that were not seen";
  EXPECT_LE(costs_.state().revision, 12u);
  EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1, 0.03) << "says nothing of prefills";
  // The machine gets slower: all decodes do.
  for (int i = 0; i < 200; ++i) {
    const int32_t sequences = Pick(1, 4);
    const StepFeatures step = {.decode_sequences = sequences,
                               .decode_context = int64_t{sequences} * Pick(64, 512)};
    RunFor(step, 2 * actual->Step(step).count());
  }
  for (const int32_t sequences : {1, 2, 4}) EXPECT_NEAR(factor(sequences, 300), 2, 0.1);
}

TEST_F(StepCostsTest, AWorkerThatGetsTwiceAsSlowIsPricedSoWithinFiftyRequests) {
  for (const double factor : {2.0, 0.5}) {
    Know();
    RunRequests(200);
    const uint64_t revision = costs_.state().revision;
    RunRequests(50, factor, factor);
    ExpectFactors(factor, factor);
    EXPECT_NEAR(costs_.state().drift, 1.0, 0.15);
    EXPECT_LE(costs_.state().revision, revision + 6) << "few revisions";
  }
}

TEST_F(StepCostsTest, OneTokenRequestsSufficeToSeeIt) {
  Know();
  RunRequests(200);
  RunRequests(200, 1.0, 1.0, 0);
  RunRequests(50, 2.0, 2.0, 0);
  ExpectFactors(2, 2);
}

// Of about three milliseconds each.
TEST_F(StepCostsTest, WhatDidNotRunLatelyIsTakenToHaveChangedAlike) {
  Know();
  RunRequests(200);
  RunDecodes(1000);
  RunDecodes(100, 2.0);
  ExpectFactors(2, 2);
}

TEST_F(StepCostsTest, AChangeAndItsEndLeaveWhatDidNotRunMeanwhileAsItWas) {
  Know();
  RunRequests(200, 1.1);
  for (int i = 0; i < 5; ++i) {
    RunDecodes(1000);
    RunDecodes(1000, 1.5);
  }
  RunDecodes(1000);
  EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1.1, 0.05);
}

TEST_F(StepCostsTest, PrefillsShowThatTheyHaveNotChangedAlike) {
  Know();
  RunRequests(200);
  RunDecodes(1000);
  RunDecodes(100, 1.6);
  RunRequests(20, 1.0, 1.6, 100);
  ExpectFactors(1, 1.6);
}

// Outputs of hundreds of tokens: a prefill comes every few tenths of a second.
TEST_F(StepCostsTest, DecodesThatChangeForAWhileSayNothingOfPrefillsAmongThem) {
  Know();
  RunRequests(40, 1.0, 1.0, 150);
  for (int i = 0; i < 40; ++i) {
    const double decode = i / 5 % 2 == 0 ? 1.5 : 1.0;
    RunDecodes(Pick(100, 200), decode);
    EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1, 0.06) << i;
    EXPECT_NEAR(PredictedFactor(AnyDecode()), decode, 0.1) << i;
    Run(AnyPrefill(), 1.0);
  }
}

TEST_F(StepCostsTest, PrefillsBesideDecodesThatChangeAreNotBlamedForThese) {
  Know();
  const auto run = [this](int prompts, double decode) {
    for (int i = 0; i < prompts; ++i) {
      RunDecodes(100, decode);
      RunMixed(1.0, decode);
    }
  };
  run(100, 1.0);
  for (const double decode : {2.0, 1.0, 2.0, 1.0}) {
    for (int i = 0; i < 5; ++i) {
      run(4, decode);
      EXPECT_NEAR(PredictedFactor(AnyPrefill()), 1, 0.08) << decode;
    }
  }
}

TEST_F(StepCostsTest, PrefillsAndDecodesChangeApart) {
  Know();
  RunRequests(100);
  RunRequests(100, 1.0, 1.6);
  ExpectFactors(1, 1.6);
  RunRequests(100, 1.4, 1.6);
  ExpectFactors(1.4, 1.6);
}

TEST_F(StepCostsTest, StepsThatAreMostlyDecodesDoNotBlameThePrefills) {
  Know();
  for (int i = 0; i < 200; ++i) {
    StepFeatures step = {.prefill_tokens = 8,
                         .prefill_pairs = CausalPairs(0, 8),
                         .decode_sequences = 64,
                         .decode_context = 64 * Pick(256, 1024)};
    Run(step, 2.0);
  }
  ExpectFactors(2, 2);
}

TEST_F(StepCostsTest, RevisionsAreRareEvenWhenTheMachineNeverRests) {
  Know();
  double seconds = 0;
  for (int i = 0; i < 2000; ++i) {
    const double factor = i / 40 % 2 == 0 ? 1.0 : 2.0;
    const StepFeatures step = AnyDecode();
    Run(step, factor);
    seconds += machine_.Step(step).count() * factor / 1e3;
  }
  EXPECT_LE(static_cast<double>(costs_.state().revision), 1 + 5 * seconds);
}

TEST_F(StepCostsTest, TheFirstStepsDoNotCount) {
  for (int i = 0; i < 4; ++i) {
    Run(AnyPrefill(), 100);
    Run(AnyDecode(), 100);
  }
  Know();
  EXPECT_EQ(costs_.state().steps, 0u);
  Run(AnyDecode(), 1);
  EXPECT_EQ(costs_.state().steps, 1u);
  EXPECT_NEAR(costs_.state().drift, 1.0, 0.3);
}

TEST_F(StepCostsTest, LearnsAModelFromStepsThatWereServed) {
  RunRequests(2, 100, 100, 3);  // cold
  RunRequests(23);
  EXPECT_EQ(costs_.state().model, nullptr) << "too few prefills";
  RunRequests(300);
  EXPECT_EQ(costs_.state().source, CostSource::kLearned);
  ExpectFactors(1, 1);
  EXPECT_LT(costs_.state().error, 0.1);
  EXPECT_LE(costs_.state().revision, 6u);
  RunRequests(50, 2.0, 2.0);
  ExpectFactors(2, 2);
}

TEST_F(StepCostsTest, AWorkerThatOnlyDecodesLearnsFromDecodes) {
  StepCosts decodes({.prefills = false, .decodes = true});
  for (int i = 0; i < 60; ++i) {
    const StepFeatures step = AnyDecode();
    decodes.Observe(step, std::chrono::duration_cast<Duration>(machine_.Step(step)));
  }
  EXPECT_EQ(decodes.state().source, CostSource::kLearned);
}

}  // namespace
}  // namespace tandem::step_costs_test
