// What a watchdog reads of an engine: at rest it has no work, held in a step it has work and stands
// still, moving it counts.

#include <thread>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem {
namespace {

void AwaitRest(TestEngine& engine) {
  while (engine->progress().has_work) std::this_thread::yield();
}

TEST(ProgressTest, AnIdleEngineHasNoWork) {
  TestEngine engine({});
  AwaitRest(engine);
  const uint64_t before = engine->progress().count;
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 2), one.NewSink());
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  AwaitRest(engine);
  EXPECT_GT(engine->progress().count, before);
}

TEST(ProgressTest, HeldInAStepItHasWorkAndStandsStill) {
  TestEngine engine({});
  engine.gate().Allow(1);
  Recording one;
  engine->Submit(Greedy(1, {1, 2, 3}, 8), one.NewSink());
  engine.gate().AwaitHeld();
  const EngineProgress held = engine->progress();
  EXPECT_TRUE(held.has_work);
  // What waits in the inbox is not done, however much of it there is.
  for (uint64_t id = 2; id < 10; ++id) engine->Cancel(RequestId(id), absl::OkStatus());
  EXPECT_EQ(engine->progress().count, held.count);
  EXPECT_TRUE(engine->progress().has_work);
  engine.gate().Open();
  EXPECT_TRUE(one.AwaitFinish().status.ok());
  // The steps that were left, each with its layers, and the messages.
  const auto layers = static_cast<uint64_t>(engine.model().num_layers);
  AwaitRest(engine);
  EXPECT_GE(engine->progress().count - held.count, 7 * (layers + 1) + 8);
}

// It must not seem idle with a message in its hands: one that hangs then would never be missed.
TEST(ProgressTest, ItHasWorkFromSubmitToFinishWheneverItIsLookedAt) {
  TestEngine engine({});
  for (uint64_t id = 1; id <= 500; ++id) {
    AwaitRest(engine);
    Recording one;
    engine->Submit(Greedy(id, {1, 2, 3}, 1), one.NewSink());
    while (engine->progress().has_work) continue;
    ASSERT_TRUE(one.finished()) << "request " << id;
  }
}

}  // namespace
}  // namespace tandem
