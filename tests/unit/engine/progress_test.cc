// What a watchdog reads of an engine: it moves at rest too, and held in a step it stands still.

#include <thread>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::progress_test {
namespace {

void AwaitMoreThan(TestEngine& engine, uint64_t count) {
  while (engine->progress() <= count) std::this_thread::yield();
}

TEST(ProgressTest, AnIdleEngineMoves) {
  TestEngine engine({});
  for (int i = 0; i < 3; ++i) AwaitMoreThan(engine, engine->progress());
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 2), one.NewSink());
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  for (int i = 0; i < 3; ++i) AwaitMoreThan(engine, engine->progress());
}

TEST(ProgressTest, HeldInAStepItStandsStill) {
  TestEngine engine({});
  engine.gate().Allow(1);
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 8), one.NewSink());
  engine.gate().AwaitHeld();
  const uint64_t held = engine->progress();
  // What waits in the inbox is not done, however much of it there is.
  for (uint64_t id = 2; id < 10; ++id) engine->Cancel(RequestId(id), absl::OkStatus());
  EXPECT_EQ(engine->progress(), held);
  engine.gate().Open();
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  // The steps that were left, each with its layers, and the messages.
  const auto layers = static_cast<uint64_t>(engine.model().num_layers);
  AwaitMoreThan(engine, held + 7 * (layers + 1) + 7);
}

// An idle engine looks for something to compute twice a second.
TestEngineSetup WithCanary() {
  TestEngineSetup setup;
  setup.canary_interval = std::chrono::milliseconds(1);
  return setup;
}

void AwaitComputedAfter(TestEngine& engine, TimePoint when) {
  while (engine->computed_at() <= when) std::this_thread::yield();
}

TEST(CanaryTest, AnIdleEngineShowsThatStepsWorkAndLeavesNothingBehind) {
  TestEngine engine(WithCanary());
  for (int i = 0; i < 2; ++i) AwaitComputedAfter(engine, engine->computed_at());
  EXPECT_EQ(engine->stats().steps, 0u) << "no step has served";
  EXPECT_EQ(engine->stats().kv.free_blocks, engine->stats().kv.total_blocks);
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 8), one.NewSink());
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  TestEngine plain({});
  Recording other;
  plain->Submit(Greedy(1, {1, 2, 3}, 8), other.NewSink());
  EXPECT_TRUE(other.AwaitFinish().status.ok());
  EXPECT_EQ(one.token_ids(), other.token_ids());
  EXPECT_TRUE(engine.AtRest());
}

TEST(CanaryTest, AStepThatHangsShowsNothing) {
  TestEngine engine(WithCanary());
  AwaitComputedAfter(engine, engine->computed_at());
  engine.gate().Allow(0);
  engine.gate().AwaitHeld();
  const TimePoint held = engine->computed_at();
  const uint64_t progress = engine->progress();
  EXPECT_EQ(engine->progress(), progress);
  EXPECT_EQ(engine->computed_at(), held);
  engine.gate().Open();
  AwaitComputedAfter(engine, held);
}

// Its thread moves all the time.
TEST(CanaryTest, StepsThatFailShowNothing) {
  TestEngine engine(WithCanary());
  AwaitComputedAfter(engine, engine->computed_at());
  engine.gate().Break(absl::InternalError("a broken device"));
  AwaitMoreThan(engine, engine->progress() + 1);  // what ran when it broke has ended
  const TimePoint broken = engine->computed_at();
  for (int i = 0; i < 3; ++i) AwaitMoreThan(engine, engine->progress());
  EXPECT_EQ(engine->computed_at(), broken);
}

TEST(CanaryTest, WithoutAnIntervalAnIdleEngineComputesNothing) {
  TestEngine engine({});
  const TimePoint start = engine->computed_at();
  for (int i = 0; i < 3; ++i) AwaitMoreThan(engine, engine->progress());
  EXPECT_EQ(engine->computed_at(), start);
}

// A decode worker whose blocks all wait for KV has no block to show anything with.
TEST(CanaryTest, WorkThatHoldsAllBlocksCountsAsComputing) {
  TestEngineSetup setup = WithCanary();
  setup.role = Role::kDecode;
  setup.num_blocks = 2;
  TestEngine engine(setup);
  AwaitComputedAfter(engine, engine->computed_at());
  const absl::StatusOr<Reservation> all = engine.Reserve(2 * setup.block_tokens - 1, 1);
  ASSERT_TRUE(all.ok()) << all.status();
  engine.gate().Allow(0);  // no step may run
  for (int i = 0; i < 2; ++i) AwaitComputedAfter(engine, engine->computed_at());
  engine.gate().Open();
}

}  // namespace
}  // namespace tandem::progress_test
