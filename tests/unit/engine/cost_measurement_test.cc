// Where an engine's step model comes from, and that measuring neither holds up requests nor leaves
// anything behind.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::cost_measurement_test {
namespace {

TestEngineSetup Measuring(Role role = Role::kUnified) {
  TestEngineSetup setup;
  setup.role = role;
  setup.num_blocks = 1024;
  setup.costs.measure_for = std::chrono::hours(1);
  return setup;
}

void AwaitStart(TestEngine& engine) {
  while (engine->stats().starting) std::this_thread::yield();
}

void AwaitMeasured(TestEngine& engine) {
  while (engine->stats().costs.source != CostSource::kMeasured) std::this_thread::yield();
}

std::vector<int32_t> Answer(TestEngine& engine) {
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 8), one.NewSink());
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  return one.token_ids();
}

TEST(CostMeasurementTest, AnEngineThatKnowsNothingMeasuresBeforeItServes) {
  for (const Role role : {Role::kUnified, Role::kPrefill, Role::kDecode}) {
    TestEngine engine(Measuring(role));
    AwaitStart(engine);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.costs.source, CostSource::kMeasured);
    EXPECT_EQ(stats.costs.revision, 1u);
    ASSERT_NE(stats.costs.model, nullptr);
    EXPECT_GT(stats.costs.model->coefficients().alpha.token_ms, 0);
    EXPECT_EQ(stats.kv.free_blocks, stats.kv.total_blocks);
    EXPECT_EQ(stats.most_used_blocks, 0);
    EXPECT_EQ(stats.steps, 0u) << "no step has served";
    EXPECT_EQ(stats.prompt_tokens, 0u);
  }
}

TEST(CostMeasurementTest, AnswersAreTheSameAfterIt) {
  TestEngine measured(Measuring());
  AwaitStart(measured);
  TestEngine plain({});
  EXPECT_EQ(Answer(measured), Answer(plain));
}

TEST(CostMeasurementTest, ARequestDoesNotWaitForItsEnd) {
  TestEngine engine(Measuring());
  engine.gate().Allow(3);
  engine.gate().AwaitHeld();
  EXPECT_TRUE(engine->stats().starting);
  EXPECT_EQ(engine->stats().kv.free_blocks, engine->stats().kv.total_blocks)
      << "a request gets the blocks that the measurement holds";
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 2), one.NewSink());
  engine.gate().Allow(3);  // the one that waits, and both of the request
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  engine.gate().AwaitHeld();  // in the measurement, which goes on
  EXPECT_FALSE(engine->stats().starting);
  EXPECT_EQ(engine->stats().costs.source, CostSource::kNone) << "four steps were too few";
  engine.gate().Open();
  AwaitMeasured(engine);
  EXPECT_TRUE(engine.AtRest());
}

// Its clients are many or quick, so that the weights are hardly there when the first request comes.
TEST(CostMeasurementTest, AfterARequestThatCameFirstItIsMadeWhenTheEngineIsIdle) {
  for (const Role role : {Role::kUnified, Role::kDecode}) {
    TestEngineSetup setup = Measuring(role);
    TestEngine engine(setup);
    if (role == Role::kUnified) {
      EXPECT_EQ(Answer(engine).size(), 8u);
    } else {
      const absl::StatusOr<Reservation> reservation = engine.Reserve(20, 4);
      ASSERT_TRUE(reservation.ok()) << reservation.status();
      engine->Release(reservation->id);
    }
    AwaitMeasured(engine);
    EXPECT_TRUE(engine.AtRest());
    EXPECT_EQ(engine->stats().most_used_blocks, role == Role::kUnified ? 2 : 3);
  }
}

TEST(CostMeasurementTest, WhatFailedIsTriedAgainWhenTheEngineIsIdle) {
  TestEngine engine(Measuring());
  engine.gate().Allow(3);
  engine.gate().AwaitHeld();
  engine.gate().FailNext(absl::FailedPreconditionError("the machine was busy"));
  engine.gate().Open();
  AwaitStart(engine);
  EXPECT_EQ(engine->stats().costs.source, CostSource::kNone) << "nobody waits for the next attempt";
  AwaitMeasured(engine);
  EXPECT_TRUE(engine.AtRest());
}

TEST(CostMeasurementTest, AFewAttemptsAreEnough) {
  TestEngineSetup setup = Measuring();
  setup.costs.measure_for = std::chrono::nanoseconds(1);
  TestEngine engine(setup);
  AwaitStart(engine);
  const uint64_t progress = engine->progress();
  while (engine->progress() < progress + 12) std::this_thread::yield();
  EXPECT_EQ(engine->stats().costs.source, CostSource::kNone);
  EXPECT_TRUE(engine.AtRest());
}

TEST(CostMeasurementTest, WhatRequestsLeftInThePrefixCacheStays) {
  TestEngine engine(Measuring());
  engine.gate().Allow(3);
  engine.gate().AwaitHeld();
  std::vector<std::unique_ptr<Recording>> requests;
  for (uint64_t id = 1; engine->stats().kv.total_blocks > 200 + 24 * static_cast<int32_t>(id);
       ++id) {
    requests.push_back(std::make_unique<Recording>());
    engine->Submit(Greedy(id, RandomPrompt(id, 200, engine.model().vocab_size), 1),
                   requests.back()->NewSink());
  }
  engine.gate().Open();
  for (const auto& one : requests) EXPECT_TRUE(one->AwaitFinish().status.ok());
  // It counts when an idle engine has waited for a message, after which it would measure.
  const uint64_t progress = engine->progress();
  while (engine->progress() < progress + 3) std::this_thread::yield();
  EXPECT_EQ(engine->stats().kv.evicted_blocks, 0);
  EXPECT_NE(engine->stats().costs.source, CostSource::kMeasured);
  EXPECT_TRUE(engine.AtRest());
}

TEST(CostMeasurementTest, AnEngineThatIsShutDownMeanwhileLeavesNoBlock) {
  TestEngine engine(Measuring());
  engine.gate().Allow(3);
  engine.gate().AwaitHeld();
  engine.Die();
  EXPECT_EQ(engine->stats().kv.free_blocks, 1024);
}

TEST(CostMeasurementTest, WhereThePoolIsTooSmallItLearnsWhileServing) {
  TestEngineSetup setup = Measuring();
  setup.num_blocks = 16;
  TestEngine engine(setup);
  AwaitStart(engine);
  EXPECT_EQ(engine->stats().costs.source, CostSource::kNone);
  for (uint64_t id = 1; id <= 40; ++id) {
    Recording one;
    engine->Submit(Greedy(id, RandomPrompt(id, 20, engine.model().vocab_size), 4), one.NewSink());
    EXPECT_TRUE(one.AwaitFinish().status.ok());
  }
  EXPECT_EQ(engine->stats().costs.source, CostSource::kLearned);
}

TEST(CostMeasurementTest, WhatIsKnownIsNotMeasured) {
  TestEngineSetup setup = Measuring();
  setup.costs.steps =
      StepCoefficients{.alpha = {.floor_ms = 0, .base_ms = 1, .token_ms = 2, .pair_ms = 0},
                       .beta = {.buckets = {{.max_sequences = 1, .base_ms = 1}},
                                .sequence_ms = 1,
                                .context_token_ms = 0},
                       .gamma = {},
                       .batch_thresh = {}};
  setup.costs.error = 0.08;
  TestEngine engine(setup);
  AwaitStart(engine);
  const CostState costs = engine->stats().costs;
  EXPECT_EQ(costs.source, CostSource::kFile);
  EXPECT_EQ(costs.error, 0.08);
  EXPECT_EQ(costs.model->coefficients().alpha.token_ms, 2);
}

}  // namespace
}  // namespace tandem::cost_measurement_test
