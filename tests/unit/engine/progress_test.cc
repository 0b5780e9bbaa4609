// What a watchdog reads of an engine: it moves at rest too, and held in a step it stands still.

#include <thread>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem {
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

}  // namespace
}  // namespace tandem
