// What a step asks of the driver, as the emulated GPU counts it: no allocation, no copy from or to
// memory that is not page-locked, no wait for the whole device; a graph once per size of batches.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simt/simt.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem {
namespace {

constexpr int32_t kVocabSize = 2048;

class EmulatedStepTest : public testing::Test {
 protected:
  EngineRequest Next(int32_t prompt_tokens, int32_t max_tokens) {
    const uint64_t id = ++last_id_;
    return Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), max_tokens);
  }

  // Chunks of prompts, decodes in batches of one to three, samples: every kind of step there is.
  void Serve() {
    std::vector<Recording> recordings(3);
    for (Recording& recording : recordings) {
      EngineRequest request = Next(70, 6);
      request.sampling = {.temperature = 0.8f, .seed = last_id_, .num_logprobs = 2};
      engine_->Submit(std::move(request), recording.NewSink());
    }
    for (Recording& recording : recordings) {
      EXPECT_EQ(recording.AwaitFinish().status, absl::OkStatus());
    }
  }

  uint64_t last_id_ = 0;
  const simt::Counters at_start_ = simt::Counts();
  TestEngine engine_{{.checkpoint = "models/sample",
                      .device = "cuda:0",
                      .num_blocks = 64,
                      .block_tokens = 16,
                      .max_context_tokens = 512,
                      .scheduler = {.max_step_tokens = 48, .max_sequences = 4},
                      .host_bytes = 8 << 20,
                      .gated = false}};
};

TEST_F(EmulatedStepTest, AsksForNothingThatWaits) {
  Serve();
  Serve();
  const simt::Counters before = simt::Counts();
  const uint64_t steps_before = engine_->stats().steps;
  for (int i = 0; i < 3; ++i) Serve();
  const simt::Counters after = simt::Counts();
  const auto steps = static_cast<int64_t>(engine_->stats().steps - steps_before);
  ASSERT_GT(steps, 20);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.pageable_copies, before.pageable_copies);
  EXPECT_EQ(after.device_synchronizations, before.device_synchronizations);
  EXPECT_GT(after.graph_launches, before.graph_launches) << "decodes are recorded";
  constexpr int64_t kSizes = 3;  // that one to three decodes are filled up to: 1, 2, 4
  EXPECT_LE(after.graphs_made - at_start_.graphs_made, kSizes);
  // The arrays, the sampling's, and the tiles of a prefill; a step may not be counted yet.
  EXPECT_LE(after.copies_to_device - before.copies_to_device, 3 * (steps + 1));
}

// One copy brings a decode step's arrays, one its sampling's, one takes the tokens back.
TEST_F(EmulatedStepTest, ADecodeStepIsAFewCalls) {
  Serve();
  Recording recording;
  engine_->Submit(Next(20, 60), recording.NewSink());
  ASSERT_TRUE(recording.AwaitTokens(10));
  const simt::Counters before = simt::Counts();
  const uint64_t steps_before = engine_->stats().steps;
  ASSERT_TRUE(recording.AwaitTokens(50));
  const simt::Counters after = simt::Counts();
  // One more step may be under way at either end.
  const auto steps = static_cast<int64_t>(engine_->stats().steps - steps_before) + 2;
  EXPECT_LE(after.graph_launches - before.graph_launches, steps);
  EXPECT_LE(after.copies_to_device - before.copies_to_device, 2 * steps);
  EXPECT_LE(after.copies_to_host - before.copies_to_host, steps);
  EXPECT_LE(after.stream_synchronizations - before.stream_synchronizations, steps);
  recording.AwaitFinish();
}

}  // namespace
}  // namespace tandem
