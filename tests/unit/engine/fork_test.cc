// Several choices of one request: one prefill, shared blocks, and the answers that each choice
// would have given alone.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/transformer/sampler.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::fork_test {
namespace {

using absl::StatusCode;

constexpr int32_t kVocabSize = 288;

EngineRequest Sampled(uint64_t id, int32_t prompt_tokens, int32_t max_tokens, int32_t n) {
  EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), max_tokens);
  request.sampling = {.temperature = 0.9f, .seed = 100 + id, .num_logprobs = 0};
  request.n = n;
  return request;
}

// What choice `index` of `request` says when it is asked for alone.
std::vector<int32_t> Alone(TestEngine& engine, EngineRequest request, int32_t index) {
  request.id = RequestId(100000 + request.id.value() * 1000 + static_cast<uint64_t>(index));
  request.sampling.seed = ChoiceSeed(request.sampling.seed, index);
  request.n = 1;
  Recording recording;
  engine->Submit(std::move(request), recording.NewSink());
  EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  return recording.token_ids();
}

struct Prompt {
  int32_t tokens;
  int64_t copied_blocks;
};

class EightChoicesTest : public testing::TestWithParam<Prompt> {};

TEST_P(EightChoicesTest, ShareOnePrompt) {
  constexpr int32_t kBlock = 8;
  constexpr int32_t kTokens = 24;
  const int32_t full_blocks = GetParam().tokens / kBlock;
  const int32_t tail_blocks = (GetParam().tokens + kTokens - 1 + kBlock - 1) / kBlock - full_blocks;
  TestEngine engine({.checkpoint = "models/sample", .num_blocks = 400, .block_tokens = kBlock});
  const EngineRequest request = Sampled(1, GetParam().tokens, kTokens, 8);
  Recording recording;
  engine->Submit(request, recording.NewSink());
  ASSERT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  const EngineStats stats = engine->stats();
  EXPECT_LE(stats.most_used_blocks, full_blocks + 8 * tail_blocks);
  EXPECT_GT(stats.most_used_blocks, full_blocks);
  EXPECT_EQ(stats.prompt_tokens, static_cast<uint64_t>(GetParam().tokens));
  EXPECT_EQ(stats.output_tokens, 8u * kTokens);
  EXPECT_EQ(stats.kv.copied_blocks, GetParam().copied_blocks);
  EXPECT_TRUE(engine.AtRest());

  TestEngine alone({.checkpoint = "models/sample", .num_blocks = 140, .block_tokens = kBlock});
  ASSERT_EQ(recording.choice_ends().size(), 8u);
  for (int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(recording.token_ids(i), Alone(alone, request, i)) << "choice " << i;
    EXPECT_EQ(recording.token_ids(i).size(), static_cast<size_t>(kTokens));
  }
}

// The last choice writes where the prompt lies; a prompt of full blocks is not written at all.
INSTANTIATE_TEST_SUITE_P(Prompts, EightChoicesTest,
                         testing::Values(Prompt{1020, 7}, Prompt{1024, 0}),
                         [](const testing::TestParamInfo<Prompt>& info) {
                           return std::to_string(info.param.tokens) + "Tokens";
                         });

class ForkRouteTest : public testing::TestWithParam<int32_t> {};

TEST_P(ForkRouteTest, TheSameChoicesWhateverTheRoute) {
  const EngineRequest request = Sampled(3, 37, 20, GetParam());
  TestEngine engine({});
  Recording unified;
  engine->Submit(request, unified.NewSink());
  ASSERT_TRUE(unified.AwaitFinish().status.ok()) << unified.AwaitFinish().status;

  HandoffPair pair({}, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  pair.Continue(**run);
  ASSERT_TRUE(pair.AwaitEnd(**run).ok());
  for (int32_t i = 0; i < GetParam(); ++i) {
    EXPECT_EQ((*run)->token_ids(i), unified.token_ids(i)) << "choice " << i;
    EXPECT_EQ(unified.token_ids(i), Alone(engine, request, i)) << "choice " << i;
  }
  EXPECT_EQ(pair.prefill()->stats().prompt_tokens, 37u) << "one prefill";
  pair.decode().Settle();
  EXPECT_TRUE(engine.AtRest());
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

INSTANTIATE_TEST_SUITE_P(Choices, ForkRouteTest, testing::Values(1, 2, 3, 8));

// Choices end at different times, some with their first token.
TEST(ForkTest, EachChoiceHasOneEnd) {
  EngineRequest request = Sampled(5, 21, 30, 8);
  for (int32_t id = 0; id < kVocabSize; id += 9) request.stop_token_ids.push_back(id);
  TestEngine engine({});
  Recording unified;
  engine->Submit(request, unified.NewSink());
  ASSERT_TRUE(unified.AwaitFinish().status.ok()) << unified.AwaitFinish().status;
  EXPECT_EQ(unified.choice_ends().size(), 8u);
  size_t stopped = 0;
  for (const ChoiceEnd& end : unified.choice_ends()) {
    const std::vector<int32_t> ids = unified.token_ids(end.index);
    EXPECT_EQ(end.reason, ids.back() % 9 == 0 ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_LT(end.cumulative_logprob, 0);
    stopped += end.reason == FinishReason::kStop ? 1 : 0;
  }
  EXPECT_GT(stopped, 0u);

  HandoffPair pair({}, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  pair.Continue(**run);
  ASSERT_TRUE(pair.AwaitEnd(**run).ok());
  for (int32_t i = 0; i < 8; ++i) EXPECT_EQ((*run)->token_ids(i), unified.token_ids(i));
  EXPECT_EQ((*run)->prefill.choice_ends().size() + (*run)->decode.choice_ends().size(), 8u);
  EXPECT_TRUE(engine.AtRest());
}

TEST(ForkTest, AChoiceThatIsNotWantedAnyMoreEndsAlone) {
  TestEngine engine({});
  EngineRequest request = Sampled(7, 12, 60, 3);
  engine.gate().Allow(4);  // the prompt and three tokens more
  Recording recording;
  engine->Submit(request, recording.NewSink());
  engine.gate().AwaitHeld();
  engine->EndChoice(request.id, 1);
  engine->EndChoice(request.id, 1);
  engine->EndChoice(request.id, 17);
  engine->EndChoice(RequestId(999), 0);
  engine.gate().Open();
  ASSERT_TRUE(recording.AwaitFinish().status.ok());
  EXPECT_EQ(recording.token_ids(0), Alone(engine, request, 0));
  EXPECT_EQ(recording.token_ids(2), Alone(engine, request, 2));
  EXPECT_LT(recording.token_ids(1).size(), 10u);
  ASSERT_EQ(recording.choice_ends().size(), 3u);
  EXPECT_EQ(recording.choice_ends().front().index, 1);
  EXPECT_EQ(recording.choice_ends().front().reason, FinishReason::kEnded);
  EXPECT_TRUE(engine.AtRest());
}

TEST(ForkTest, ACancelEndsAllChoices) {
  TestEngine engine({});
  engine.gate().Allow(5);
  Recording recording;
  engine->Submit(Sampled(7, 12, 60, 4), recording.NewSink());
  engine.gate().AwaitHeld();
  engine->Cancel(RequestId(7), absl::OkStatus());
  engine.gate().Open();
  EXPECT_EQ(recording.AwaitFinish().status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(recording.choice_ends().empty());
  EXPECT_TRUE(engine.AtRest());
}

TEST(ForkTest, TenShortPromptsArePrefilledInOneStep) {
  TestEngine engine({.num_blocks = 256, .scheduler = {.max_step_tokens = 1024}});
  engine.gate().Allow(0);
  Recording first;
  engine->Submit(Greedy(100, {1, 2}, 1), first.NewSink());
  engine.gate().AwaitHeld();  // what follows arrives together
  std::vector<Recording> recordings(10);
  for (uint64_t id = 0; id < recordings.size(); ++id) {
    engine->Submit(Greedy(id, RandomPrompt(id, 64, kVocabSize), 2), recordings[id].NewSink());
  }
  engine.gate().Allow(2);
  engine.gate().AwaitHeld();
  for (const Recording& recording : recordings) EXPECT_EQ(recording.token_ids().size(), 1u);
  engine.gate().Open();
  for (const Recording& recording : recordings) {
    EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  }
  EXPECT_EQ(engine->stats().steps, 3u);
}

}  // namespace
}  // namespace tandem::fork_test
