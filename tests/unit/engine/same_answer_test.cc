// Routing never changes the answer (P2): the same requests give the same token ids whether they run
// alone, in a full batch or through two engines, in chunks of any size, with any number of threads.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::same_answer_test {
namespace {

using TokenIds = std::vector<int32_t>;

struct Outcome {
  std::vector<TokenIds> answers;  // by request
  uint64_t steps = 0;
};

struct Model {
  const char* name;
  const char* directory;
  int32_t longest_prompt;  // beyond 256 where the context allows, so that 256 is not whole
};

constexpr int32_t kWhole = 0;

// Prompts around the edges of blocks and chunks, one near the context, with every way to sample.
std::vector<EngineRequest> Requests(const Model& model, int32_t vocab_size) {
  std::vector<SamplingParams> ways(8);
  ways[0].temperature = 0;
  ways[1].top_k = 20;
  ways[2].top_p = 0.8f;
  ways[3].min_p = 0.05f;
  ways[4].repetition_penalty = 1.3f;
  ways[5].presence_penalty = 0.7f;
  ways[6].frequency_penalty = 0.4f;
  ways[7] = {.temperature = 0.7f, .top_k = 50, .top_p = 0.95f, .repetition_penalty = 1.1f};
  const int32_t lengths[] = {1, 7, 8, 9, 17, 40, 100, model.longest_prompt};

  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < ways.size(); ++i) {
    EngineRequest request =
        Greedy(i + 1, RandomPrompt(i, lengths[i], vocab_size), static_cast<int32_t>(12 + 3 * i));
    request.sampling = ways[i];
    request.sampling.seed = 1000 + i;
    requests.push_back(std::move(request));
  }
  // One that a stop token ends: whatever it draws first of the upper half of the vocabulary.
  EngineRequest stopped = requests[1];
  stopped.id = RequestId(ways.size() + 1);
  for (int32_t id = vocab_size / 2; id < vocab_size; ++id) stopped.stop_token_ids.push_back(id);
  requests.push_back(std::move(stopped));
  return requests;
}

TestEngineSetup SetupFor(const Model& model, int32_t chunk, int num_threads) {
  return {.checkpoint = model.directory,
          .num_threads = num_threads,
          .num_blocks = 256,
          .scheduler = {.max_step_tokens = 640, .max_prefill_chunk = chunk}};
}

Outcome RunAlone(const TestEngineSetup& setup, const std::vector<EngineRequest>& requests) {
  TestEngine engine(setup);
  std::vector<TokenIds> answers;
  for (const EngineRequest& request : requests) {
    Recording recording;
    engine->Submit(request, recording.NewSink());
    EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
    answers.push_back(recording.token_ids());
  }
  EXPECT_TRUE(engine.AtRest());
  return {std::move(answers), engine->stats().steps};
}

Outcome RunTogether(const TestEngineSetup& setup, const std::vector<EngineRequest>& requests) {
  TestEngine engine(setup);
  engine.gate().Allow(0);
  std::vector<Recording> recordings(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->Submit(requests[i], recordings[i].NewSink());
  }
  engine.gate().Open();
  std::vector<TokenIds> answers;
  for (Recording& recording : recordings) {
    EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
    answers.push_back(recording.token_ids());
  }
  EXPECT_TRUE(engine.AtRest());
  return {std::move(answers), engine->stats().steps};
}

std::vector<TokenIds> RunDisaggregated(const TestEngineSetup& setup, Wire wire,
                                       const std::vector<EngineRequest>& requests) {
  HandoffPair pair(setup, wire);
  std::vector<Disaggregated*> runs;
  for (const EngineRequest& request : requests) {
    const auto run = pair.Start(request);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return {};
    runs.push_back(*run);
  }
  for (Disaggregated* run : runs) pair.Continue(*run);
  std::vector<TokenIds> answers;
  for (Disaggregated* run : runs) {
    const absl::Status status = pair.AwaitEnd(*run);
    EXPECT_TRUE(status.ok()) << status;
    answers.push_back(run->token_ids());
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
  return answers;
}

class SameAnswerTest : public testing::TestWithParam<Model> {
 protected:
  SameAnswerTest() {
    const int32_t vocab_size = TestModel::Load(GetParam().directory, 1)->config.vocab_size;
    requests_ = Requests(GetParam(), vocab_size);
    expected_ = RunAlone(SetupFor(GetParam(), kWhole, 1), requests_).answers;
  }

  std::vector<EngineRequest> requests_;
  std::vector<TokenIds> expected_;
};

TEST_P(SameAnswerTest, AnswersAreAnswers) {
  for (size_t i = 0; i + 1 < requests_.size(); ++i) {
    EXPECT_EQ(expected_[i].size(), static_cast<size_t>(requests_[i].max_tokens)) << i;
  }
  std::set<TokenIds> distinct(expected_.begin(), expected_.end());
  EXPECT_EQ(distinct.size(), expected_.size());
  // The stopped one has the tokens of its twin, up to the first in the upper half.
  ASSERT_FALSE(expected_.back().empty());
  ASSERT_LE(expected_.back().size(), expected_[1].size());
  for (size_t i = 0; i < expected_.back().size(); ++i) {
    EXPECT_EQ(expected_.back()[i], expected_[1][i]);
  }
}

TEST_P(SameAnswerTest, WhateverTheRouteTheChunksAndTheThreads) {
  for (const int num_threads : {1, 2}) {
    for (const int32_t chunk : {1, 17, 256, kWhole}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", threads " << num_threads);
      const TestEngineSetup setup = SetupFor(GetParam(), chunk, num_threads);
      const Outcome alone = RunAlone(setup, requests_);
      const Outcome together = RunTogether(setup, requests_);
      EXPECT_EQ(alone.answers, expected_);
      EXPECT_EQ(together.answers, expected_);
      EXPECT_LT(together.steps, alone.steps) << "nothing shared a step";
      EXPECT_EQ(RunDisaggregated(setup, Wire::kLoopback, requests_), expected_);
      EXPECT_EQ(RunDisaggregated(setup, Wire::kTcp, requests_), expected_);
    }
  }
}

TEST_P(SameAnswerTest, WhenTheStepBudgetIsTight) {
  TestEngineSetup setup = SetupFor(GetParam(), kWhole, 2);
  setup.scheduler.max_step_tokens = 5;
  setup.scheduler.max_sequences = 16;
  EXPECT_EQ(RunTogether(setup, requests_).answers, expected_);
  EXPECT_EQ(RunDisaggregated(setup, Wire::kLoopback, requests_), expected_);
}

// KV of 8 bits is handed over as it is stored.
TEST(EightBitKvTest, GivesTheSameAnswerWhateverTheRoute) {
  const Model model = {"sample", "models/sample", 300};
  const int32_t vocab_size = TestModel::Load(model.directory, 1)->config.vocab_size;
  const std::vector<EngineRequest> requests = Requests(model, vocab_size);
  TestEngineSetup setup = SetupFor(model, kWhole, 1);
  setup.kv_dtype = DType::kF8E4M3;
  const std::vector<TokenIds> expected = RunAlone(setup, requests).answers;
  setup.num_threads = 2;
  setup.scheduler.max_prefill_chunk = 17;
  EXPECT_EQ(RunTogether(setup, requests).answers, expected);
  EXPECT_EQ(RunDisaggregated(setup, Wire::kLoopback, requests), expected);
  EXPECT_EQ(RunDisaggregated(setup, Wire::kTcp, requests), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, SameAnswerTest,
                         testing::Values(Model{"llama2", "tests/golden/checkpoints/llama2", 200},
                                         Model{"mistral", "tests/golden/checkpoints/mistral", 200},
                                         Model{"qwen3", "tests/golden/checkpoints/qwen3", 200},
                                         Model{"sample", "models/sample", 300}),
                         [](const testing::TestParamInfo<Model>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace tandem::same_answer_test
