// What a step asks of the driver, as the emulated GPU counts it: one copy to the device, no
// allocation, no copy from or to memory that is not page-locked, no wait for the whole device, no
// graph that is made and nothing that cuBLASLt has to choose: that was done at the start.

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simt/simt.h"
#include "tests/support/recording_sink.h"
#include "tests/support/shallow_model.h"
#include "tests/support/test_engine.h"

namespace tandem::emulated_step_test {
namespace {

constexpr int32_t kVocabSize = 2048;

// Requests whose prompts nobody else has.
class Requests {
 public:
  EngineRequest Next(int32_t prompt_tokens, int32_t max_tokens) {
    const uint64_t id = ++last_id_;
    EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), max_tokens);
    request.sampling = {.temperature = 0.8f,
                        .presence_penalty = 0.5f,
                        .seed = id,
                        .num_logprobs = static_cast<int32_t>(id % 3)};
    return request;
  }

 private:
  uint64_t last_id_ = 0;
};

// With graphs, and with a pool that its requests do not fill.
TestEngineSetup EngineOf(int32_t max_step_tokens, int32_t max_sequences, int64_t host_bytes) {
  return {.checkpoint = ShallowSample(),
          .device = "cuda:0",
          .num_blocks = 96,
          .block_tokens = 16,
          .max_context_tokens = 512,
          .scheduler = {.max_step_tokens = max_step_tokens, .max_sequences = max_sequences},
          .host_bytes = host_bytes,
          .gated = false};
}

class EmulatedStepTest : public testing::Test {
 protected:
  // Ends with all counted. The first request is answered once the engine has warmed up.
  void Serve(TestEngine& engine, int32_t count, int32_t prompt_tokens, int32_t max_tokens) {
    std::vector<Recording> recordings(static_cast<size_t>(count));
    for (Recording& recording : recordings) {
      engine->Submit(requests_.Next(prompt_tokens, max_tokens), recording.NewSink());
    }
    for (Recording& recording : recordings) {
      EXPECT_EQ(recording.AwaitFinish().status, absl::OkStatus());
    }
    AwaitRest(engine);
  }
  static void AwaitRest(TestEngine& engine) {
    while (!engine.AtRest()) std::this_thread::yield();
  }

  Requests requests_;
  const simt::Counters at_start_ = simt::Counts();
};

TEST_F(EmulatedStepTest, AsksForNothingThatWaits) {
  TestEngine engine(EngineOf(48, 4, 8 << 20));
  Serve(engine, 1, 1, 1);
  const simt::Counters before = simt::Counts();
  const uint64_t steps_before = engine->stats().steps;
  for (int i = 0; i < 3; ++i) Serve(engine, 3, 70, 6);
  const simt::Counters after = simt::Counts();
  ASSERT_GT(engine->stats().steps - steps_before, 20);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.pageable_copies, before.pageable_copies);
  EXPECT_EQ(after.device_synchronizations, before.device_synchronizations);
  EXPECT_GT(after.graph_launches, before.graph_launches) << "decodes are recorded";
}

TEST_F(EmulatedStepTest, ADecodeStepIsOneCopyEachWayAndOneLaunch) {
  TestEngine engine(EngineOf(48, 4, 0));
  Serve(engine, 1, 1, 1);
  const simt::Counters before = simt::Counts();
  const uint64_t steps_before = engine->stats().steps;
  Serve(engine, 1, 20, 60);
  const simt::Counters after = simt::Counts();
  const auto steps = static_cast<int64_t>(engine->stats().steps - steps_before);
  ASSERT_EQ(steps, 60);  // the first is the prompt's
  EXPECT_EQ(after.graph_launches - before.graph_launches, steps - 1);
  EXPECT_EQ(after.copies_to_device - before.copies_to_device, steps);
  EXPECT_EQ(after.copies_to_host - before.copies_to_host, steps);
}

TEST_F(EmulatedStepTest, AStepOfPrefillsAndDecodesIsOneCopy) {
  TestEngine engine(EngineOf(48, 4, 0));
  Serve(engine, 1, 1, 1);
  const simt::Counters before = simt::Counts();
  const uint64_t steps_before = engine->stats().steps;
  Recording first;
  Recording second;
  engine->Submit(requests_.Next(20, 60), first.NewSink());
  ASSERT_TRUE(first.AwaitTokens(5));
  engine->Submit(requests_.Next(130, 4), second.NewSink());  // in three chunks beside decodes
  EXPECT_EQ(second.AwaitFinish().status, absl::OkStatus());
  EXPECT_EQ(first.AwaitFinish().status, absl::OkStatus());
  AwaitRest(engine);
  const simt::Counters after = simt::Counts();
  const auto steps = static_cast<int64_t>(engine->stats().steps - steps_before);
  ASSERT_LE(steps, 60 + 3) << "no step held both";
  ASSERT_LT(after.graph_launches - before.graph_launches, steps - 3) << "no step held both";
  EXPECT_EQ(after.copies_to_device - before.copies_to_device, steps);
}

// Four choices write where they share the last block of their prompt.
TEST_F(EmulatedStepTest, BlocksThatAreCopiedComeInTheStepsOneCopy) {
  TestEngine engine(EngineOf(48, 8, 0));
  Serve(engine, 1, 1, 1);
  const simt::Counters before = simt::Counts();
  const EngineStats stats_before = engine->stats();
  EngineRequest request = requests_.Next(20, 10);
  request.n = 4;
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_EQ(recording.AwaitFinish().status, absl::OkStatus());
  AwaitRest(engine);
  const simt::Counters after = simt::Counts();
  const EngineStats stats = engine->stats();
  ASSERT_EQ(stats.kv.copied_blocks - stats_before.kv.copied_blocks, 3);
  EXPECT_EQ(after.copies_to_device - before.copies_to_device,
            static_cast<int64_t>(stats.steps - stats_before.steps));
}

// 1 to 12 decodes at once, chunks of all sizes.
TEST_F(EmulatedStepTest, AfterTheStartNothingIsRecordedOrChosen) {
  constexpr int64_t kSizes = 5;  // 1, 2, 4, 8, 12
  TestEngine engine(EngineOf(48, 12, 0));
  Serve(engine, 1, 1, 1);
  const simt::Counters before = simt::Counts();
  EXPECT_EQ(before.graphs_made - at_start_.graphs_made, kSizes);
  EXPECT_GT(before.heuristics, at_start_.heuristics);
  for (int32_t count = 1; count <= 12; ++count) Serve(engine, count, 7 + 3 * count, 4);
  const simt::Counters after = simt::Counts();
  EXPECT_GT(after.graph_launches, before.graph_launches);
  EXPECT_EQ(after.graphs_made, before.graphs_made);
  EXPECT_EQ(after.heuristics, before.heuristics);
  EXPECT_EQ(after.allocations, before.allocations);
}

TEST_F(EmulatedStepTest, TheStartIsNotSeen) {
  TestEngine engine(EngineOf(48, 4, 0));
  Serve(engine, 1, 5, 2);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.steps, 2);
  EXPECT_EQ(stats.prompt_tokens, 5);
  EXPECT_EQ(stats.output_tokens, 2);
  EXPECT_EQ(stats.requests_accepted, 1);
  EXPECT_EQ(stats.most_used_blocks, 1);
  EXPECT_EQ(stats.kv.free_blocks, stats.kv.total_blocks);
}

// Decodes are filled up to no more rows than a step has.
TEST_F(EmulatedStepTest, AStepMayHaveFewerTokensThanThereAreSequences) {
  TestEngine engine(EngineOf(10, 16, 0));
  Serve(engine, 16, 3, 5);
  EXPECT_EQ(simt::Counts().graphs_made - at_start_.graphs_made, 5);  // 1, 2, 4, 8, 10
}

}  // namespace
}  // namespace tandem::emulated_step_test
