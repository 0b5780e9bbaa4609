// The log-probabilities of a prompt are those of the model, whatever computes them: as transformers
// has them, as decoding reports them, in every chunk, on a prefill worker and after a preemption.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/handoff_pair.h"
#include "tests/support/read_file.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/support/tree.h"

namespace tandem::prompt_logprobs_test {
namespace {

using Json = nlohmann::json;
using TokenIds = std::vector<int32_t>;

constexpr int32_t kVocabSize = 288;

EngineRequest Scored(uint64_t id, TokenIds prompt, int32_t max_tokens, int32_t num_logprobs = 3) {
  EngineRequest request = Greedy(id, std::move(prompt), max_tokens);
  request.prompt_logprobs = num_logprobs;
  return request;
}

void ExpectSame(const std::vector<SampledToken>& is, const std::vector<SampledToken>& was) {
  ASSERT_EQ(is.size(), was.size());
  for (size_t i = 0; i < is.size(); ++i) {
    SCOPED_TRACE("token " + std::to_string(i));
    EXPECT_EQ(is[i].token_id, was[i].token_id);
    EXPECT_EQ(is[i].logprob, was[i].logprob);
    ASSERT_EQ(is[i].top.size(), was[i].top.size());
    for (size_t k = 0; k < is[i].top.size(); ++k) {
      EXPECT_EQ(is[i].top[k].token_id, was[i].top[k].token_id);
      EXPECT_EQ(is[i].top[k].logprob, was[i].top[k].logprob);
    }
  }
}

std::vector<SampledToken> ScoresOf(const TestEngineSetup& setup, const EngineRequest& request) {
  TestEngine engine(setup);
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  EXPECT_TRUE(engine.AtRest());
  return recording.prompt_logprobs();
}

// The log-probabilities under logits, most probable first.
std::vector<TokenLogprob> Ranked(const std::vector<double>& logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double logit : logits) total += std::exp(logit - highest);
  std::vector<TokenLogprob> ranked;
  for (size_t i = 0; i < logits.size(); ++i) {
    ranked.push_back(
        {static_cast<int32_t>(i), static_cast<float>(logits[i] - highest - std::log(total))});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob;
  });
  return ranked;
}

// transformers' logits after the prompt of each case, and its greedy tokens behind it, as a prompt.
class GoldenPromptLogprobsTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenPromptLogprobsTest, EqualTransformers) {
  constexpr double kTolerance = 1e-3;
  const Json golden = ParseJson(ReadFile(TreePath("tests/golden/logits/") + GetParam() + ".json"));
  ASSERT_TRUE(golden.is_object() && !golden["cases"].empty());
  TestEngine engine({.checkpoint = golden["checkpoint"].get<std::string>(),
                     .num_threads = 2,
                     .num_blocks = 256,
                     .scheduler = {.max_step_tokens = 1024, .max_sequences = 16},
                     .kv_dtype = DType::kF32});
  uint64_t id = 0;
  for (const Json& c : golden["cases"]) {
    auto prompt = c["prompt_ids"].get<TokenIds>();
    const size_t behind = prompt.size();
    const auto greedy = c["greedy_ids"].get<TokenIds>();
    prompt.insert(prompt.end(), greedy.begin(), greedy.end());
    Recording recording;
    engine->Submit(Scored(++id, prompt, 0, 5), recording.NewSink());
    ASSERT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
    const std::vector<SampledToken> scores = recording.prompt_logprobs();
    ASSERT_EQ(scores.size(), prompt.size() - 1);
    const std::vector<TokenLogprob> expected = Ranked(c["last_logits"].get<std::vector<double>>());
    const SampledToken& first = scores[behind - 1];
    EXPECT_NEAR(first.logprob, expected[0].logprob, kTolerance);
    ASSERT_EQ(first.top.size(), 5u);
    for (size_t k = 0; k < first.top.size(); ++k) {
      EXPECT_NEAR(first.top[k].logprob, expected[k].logprob, kTolerance);
    }
    for (size_t k = 0; k < greedy.size(); ++k) {
      const SampledToken& token = scores[behind - 1 + k];
      EXPECT_EQ(token.token_id, greedy[k]);
      EXPECT_EQ(token.top[0].token_id, greedy[k]) << "greedy token " << k;
      EXPECT_EQ(token.top[0].logprob, token.logprob);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenPromptLogprobsTest,
                         testing::Values("llama2", "llama3", "linear", "mistral", "qwen2", "qwen3",
                                         "sharded", "sample"),
                         [](const auto& info) { return std::string(info.param); });

// More rows than there is memory for logits, so they are computed in pieces.
TEST(PromptLogprobsTest, EqualWhatDecodingReports) {
  const TestEngineSetup setup = {.scheduler = {.max_step_tokens = 64, .max_sequences = 3}};
  TestEngine engine(setup);
  EngineRequest request = Greedy(1, RandomPrompt(4, 13, kVocabSize), 50);
  request.sampling = {.temperature = 1, .seed = 5, .num_logprobs = 4};
  Recording decoded;
  engine->Submit(request, decoded.NewSink());
  ASSERT_TRUE(decoded.AwaitFinish().status.ok());
  TokenIds prompt = request.prompt;
  for (const int32_t id : decoded.token_ids()) prompt.push_back(id);
  const std::vector<SampledToken> scores = ScoresOf(setup, Scored(2, prompt, 1, 4));
  ASSERT_EQ(scores.size(), prompt.size() - 1);
  ExpectSame({scores.begin() + 12, scores.end()}, decoded.tokens());
}

class PromptLogprobsOnRoutesTest : public testing::Test {
 protected:
  const TestEngineSetup setup_ = {.num_blocks = 256, .scheduler = {.max_step_tokens = 640}};
  const EngineRequest request_ = Scored(1, RandomPrompt(9, 100, kVocabSize), 5);
  const std::vector<SampledToken> expected_ = ScoresOf(setup_, request_);
};

TEST_F(PromptLogprobsOnRoutesTest, AreTheSameInChunksOfAnySize) {
  ASSERT_EQ(expected_.size(), 99u);
  for (size_t i = 0; i < expected_.size(); ++i) {
    EXPECT_EQ(expected_[i].token_id, request_.prompt[i + 1]);
    EXPECT_LT(expected_[i].logprob, 0);
    EXPECT_GE(expected_[i].top[0].logprob, expected_[i].logprob);
  }
  for (const int32_t chunk : {1, 17, 99}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    TestEngineSetup setup = setup_;
    setup.num_threads = 2;
    setup.scheduler.max_prefill_chunk = chunk;
    ExpectSame(ScoresOf(setup, request_), expected_);
  }
}

TEST_F(PromptLogprobsOnRoutesTest, AreTheSameInABatchAndDoNotChangeTheAnswer) {
  TestEngine engine(setup_);
  std::vector<EngineRequest> requests = {request_, Scored(2, RandomPrompt(8, 40, kVocabSize), 9),
                                         Greedy(3, RandomPrompt(7, 60, kVocabSize), 9)};
  requests[1].n = 3;
  requests[1].sampling = {.temperature = 1, .seed = 4};
  std::vector<std::vector<TokenIds>> answers;
  for (const int32_t num_logprobs : {-1, 3}) {
    requests[0].prompt_logprobs = requests[1].prompt_logprobs = num_logprobs;
    engine.gate().Allow(0);
    std::vector<Recording> recordings(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine->Submit(requests[i], recordings[i].NewSink());
    }
    engine.gate().Open();
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(recordings[i].AwaitFinish().status.ok()) << recordings[i].AwaitFinish().status;
      std::vector<TokenIds>& choices = answers.emplace_back();
      for (int32_t k = 0; k < requests[i].n; ++k) choices.push_back(recordings[i].token_ids(k));
    }
    if (num_logprobs < 0) continue;
    ExpectSame(recordings[0].prompt_logprobs(), expected_);
    EXPECT_EQ(recordings[1].prompt_logprobs().size(), 39u);
    EXPECT_TRUE(recordings[2].prompt_logprobs().empty());
  }
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[i], answers[3 + i]);
}

TEST_F(PromptLogprobsOnRoutesTest, TakeNothingFromThePrefixCacheButLeaveThePromptThere) {
  TestEngine engine(setup_);
  for (uint64_t id = 1; id <= 2; ++id) {
    EngineRequest request = request_;
    request.id = RequestId(id);
    Recording recording;
    engine->Submit(request, recording.NewSink());
    EXPECT_EQ(recording.AwaitFinish().cached_tokens, 0);
    ExpectSame(recording.prompt_logprobs(), expected_);
  }
  Recording later;
  engine->Submit(Greedy(3, request_.prompt, 5), later.NewSink());
  EXPECT_GT(later.AwaitFinish().cached_tokens, 90);
}

TEST_F(PromptLogprobsOnRoutesTest, AreComputedByAPrefillWorker) {
  Recording undisturbed;
  TestEngine engine(setup_);
  engine->Submit(request_, undisturbed.NewSink());
  ASSERT_TRUE(undisturbed.AwaitFinish().status.ok());
  HandoffPair pair(setup_, Wire::kLoopback);
  for (uint64_t id = 1; id <= 2; ++id) {  // both workers have the prompt cached the second time
    EngineRequest request = request_;
    request.id = RequestId(id);
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_TRUE(pair.AwaitEnd(**run).ok());
    ExpectSame((*run)->prefill.prompt_logprobs(), expected_);
    EXPECT_TRUE((*run)->decode.prompt_logprobs().empty());
    EXPECT_EQ((*run)->token_ids(), undisturbed.token_ids());
  }
}

TEST_F(PromptLogprobsOnRoutesTest, ComeWithoutATokenWhereNoneIsWanted) {
  EngineRequest request = request_;
  request.max_tokens = 0;
  TestEngine engine(setup_);
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_EQ(recording.AwaitFinish().reason, FinishReason::kLength);
  ExpectSame(recording.prompt_logprobs(), expected_);
  EXPECT_TRUE(recording.token_ids().empty());
  ASSERT_EQ(recording.choice_ends().size(), 1u);
  EXPECT_EQ(recording.choice_ends()[0].reason, FinishReason::kLength);
  EXPECT_EQ(engine->stats().output_tokens, 0u);
  EXPECT_TRUE(engine.AtRest());

  HandoffPair pair(setup_, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ((*run)->prefill.AwaitFinish().reason, FinishReason::kLength);
  pair.Continue(**run);
  ExpectSame((*run)->prefill.prompt_logprobs(), expected_);
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST_F(PromptLogprobsOnRoutesTest, AreNotComputedAgainForARequestThatResumes) {
  TestEngine engine(setup_);
  EngineRequest request = request_;
  request.so_far = {{.token_ids = {1, 2}}};
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  EXPECT_TRUE(recording.prompt_logprobs().empty());
}

TEST_F(PromptLogprobsOnRoutesTest, GoWithABeamSearch) {
  EngineRequest request = request_;
  request.beams = BeamParams{.width = 3};
  ExpectSame(ScoresOf(setup_, request), expected_);
}

TEST_F(PromptLogprobsOnRoutesTest, OfAPromptOfOneTokenAreNone) {
  EXPECT_TRUE(ScoresOf(setup_, Scored(1, {5}, 3)).empty());
}

// Prompts of several chunks beside outputs that grow: some prompts are preempted between two
// chunks, and each position still comes once, which the recordings check.
TEST_F(PromptLogprobsOnRoutesTest, ComeOnceWherePromptsArePreempted) {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= 24; ++id) {
    requests.push_back(
        Scored(id, RandomPrompt(id, static_cast<int32_t>(10 + id * 11 % 90), kVocabSize), 60, 2));
    requests.back().priority = static_cast<int32_t>(id / 6);
  }
  TestEngineSetup setup = {.num_blocks = 40,
                           .scheduler = {.max_step_tokens = 24, .max_sequences = 24}};
  int32_t preemptions = 0;
  std::vector<std::vector<SampledToken>> scores[2];
  std::vector<TokenIds> answers[2];
  for (const bool crowded : {false, true}) {
    setup.num_blocks = crowded ? 40 : 1200;
    TestEngine engine(setup);
    ExpectShortOutputs(engine);
    std::vector<Recording> recordings(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine->Submit(requests[i], recordings[i].NewSink());
    }
    for (Recording& recording : recordings) {
      const FinishInfo finish = recording.AwaitFinish();
      ASSERT_TRUE(finish.status.ok()) << finish.status;
      preemptions += finish.preemptions;
      scores[crowded].push_back(recording.prompt_logprobs());
      answers[crowded].push_back(recording.token_ids());
    }
    EXPECT_TRUE(engine.AtRest());
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(answers[0], answers[1]);
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(scores[1][i], scores[0][i]);
}

}  // namespace
}  // namespace tandem::prompt_logprobs_test
