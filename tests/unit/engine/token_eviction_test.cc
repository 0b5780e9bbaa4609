// Eviction of KV, at the end of prompts and while decoding: the tokens that stay are the right ones
// in each KV head, at their true positions, and no route or batch changes an answer where it does not
// change what stays.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/token_eviction/select_tokens.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/support/tree.h"
#include "tests/unit/engine/evicting_requests.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::token_eviction_test {
namespace {

using evicting_requests::Answer;
using evicting_requests::AskAlone;
using evicting_requests::Evicted;
using evicting_requests::Evicting;
using evicting_requests::kBlockTokens;
using evicting_requests::kPrompt;
using evicting_requests::kThird;
using evicting_requests::kThirdOfAll;

std::vector<TokenEviction> AllPolicies() {
  std::vector<TokenEviction> all;
  for (size_t i = 0; i < kTokenEvictionPolicyNames.size(); ++i) {
    all.push_back(kThird);
    all.back().policy = static_cast<TokenEvictionPolicy>(i);
  }
  return all;
}

// What each KV head of the model keeps of a prompt whose tokens got `scores`, as Evict takes it.
std::vector<std::vector<int32_t>> Selected(const TokenEviction& eviction,
                                           const ModelUnderTest& model,
                                           const std::vector<std::vector<float>>& scores) {
  const int32_t heads = model.config().num_kv_heads;
  std::vector<std::vector<int32_t>> kept;
  for (int32_t i = 0; i < model.config().num_layers * heads; ++i) {
    kept.push_back(SelectTokens(eviction, i / heads, i % heads, kPrompt, scores[i]));
  }
  return kept;
}

std::string NameOf(const testing::TestParamInfo<TokenEviction>& info) {
  std::string name(Name(info.param.policy));
  std::erase(name, '-');
  return name;
}

class TokenEvictionTest : public testing::TestWithParam<TokenEviction> {};

INSTANTIATE_TEST_SUITE_P(Policies, TokenEvictionTest, testing::ValuesIn(AllPolicies()), NameOf);

// The reference computes the prompt by itself, ranks its tokens, copies rows one by one and decodes
// at the positions behind the whole prompt.
TEST_P(TokenEvictionTest, AnswersAreThoseOfAModelThatKeepsTheSameTokens) {
  const EngineRequest request = Evicting(1, GetParam());
  const auto model = ModelUnderTest::Load(
      {.directory = TreePath("tests/golden/checkpoints/llama2"), .kv_dtype = DType::kBF16});
  TestSequence ranked = model->NewSequence(request.prompt);
  const std::vector<std::vector<float>> scores =
      model->MassesOf(ranked, GetParam().WindowTokens(), DecayOf(GetParam().policy), kPrompt);
  const std::vector<std::vector<int32_t>> kept = Selected(GetParam(), *model, scores);
  TestSequence sequence = model->NewSequence(request.prompt);
  std::vector<float> logits = model->Prefill(sequence, kPrompt);
  model->Evict(sequence, kept);
  std::vector<int32_t> expected = {ArgMax(logits)};
  while (std::ssize(expected) < request.max_tokens) {
    logits = model->DecodeGreedily(sequence, logits);
    expected.push_back(ArgMax(logits));
  }

  const Answer answer = AskAlone(request);
  EXPECT_EQ(answer.token_ids, expected);
  EXPECT_EQ(answer.finish.evicted_tokens, kPrompt - 50);
  EngineRequest whole = request;
  whole.eviction.reset();
  EXPECT_NE(AskAlone(whole).token_ids, expected) << "eviction changes nothing here";
}

TEST_P(TokenEvictionTest, AHandOffSendsWhatStaysAndGivesTheSameAnswer) {
  const EngineRequest request = Evicting(2, GetParam());
  const std::vector<int32_t> expected = AskAlone(request).token_ids;
  for (const Wire wire : {Wire::kLoopback, Wire::kTcp}) {
    HandoffPair pair({.block_tokens = kBlockTokens}, {.block_tokens = 16}, wire);
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
    EXPECT_EQ((*run)->token_ids(), expected);
    const FinishInfo sent = (*run)->prefill.AwaitFinish();
    EXPECT_EQ(sent.evicted_tokens, Evicted(request));
    EXPECT_EQ((*run)->decode.AwaitFinish().evicted_tokens, Evicted(request));
    EXPECT_LT(sent.kv.wire_bytes * 2, sent.kv.raw_bytes);
    uint64_t kv_bytes = 0;
    for (const KvLayerParts& layer : sent.kv.parts) kv_bytes += layer.k.kv_bytes + layer.v.kv_bytes;
    EXPECT_EQ(kv_bytes, static_cast<uint64_t>((kPrompt - Evicted(request)) *
                                              pair.prefill().layout().BytesPerToken()))
        << "only what stays is posted";
    pair.decode().Settle();
    EXPECT_TRUE(pair.prefill().AtRest());
    EXPECT_TRUE(pair.decode().AtRest());
  }
}

// Ranks are sums of floats, and chunks add them in another order; a token that lies on the edge may
// change its place, but no prompt here has one.
TEST_P(TokenEvictionTest, ChunksAndCompanyDoNotChangeWhatStays) {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(Evicting(id, GetParam(), 90 + static_cast<int32_t>(id) * 17));
  }
  for (const int32_t chunk : {7, 64}) {
    TestEngine engine({.num_blocks = 256,
                       .block_tokens = kBlockTokens,
                       .scheduler = {.max_step_tokens = 128, .max_prefill_chunk = chunk}});
    std::vector<Recording> recordings(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine->Submit(requests[i], recordings[i].NewSink());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(recordings[i].AwaitFinish().status.ok());
      EXPECT_EQ(recordings[i].token_ids(), AskAlone(requests[i]).token_ids) << chunk << " " << i;
    }
    EXPECT_TRUE(engine.AtRest());
  }
}

// The reference gives up a block whenever its last one is full and it holds more than a third of
// all tokens: of the 50 tokens of the prompt that stay, the lowest ranks in front of the last 4,
// until no more than 25 would be left; then the oldest block that holds output alone.
TEST(TokenEvictionPoolTest, TheLowestRanksAndTheOldestOutputGoWhileDecoding) {
  const EngineRequest request = Evicting(1, kThirdOfAll, kPrompt, 100);
  const auto model = ModelUnderTest::Load(
      {.directory = TreePath("tests/golden/checkpoints/llama2"), .kv_dtype = DType::kBF16});
  TestSequence ranked = model->NewSequence(request.prompt);
  const auto scores =
      model->MassesOf(ranked, kThirdOfAll.WindowTokens(), DecayOf(kThirdOfAll.policy), kPrompt);
  const std::vector<std::vector<int32_t>> kept = Selected(kThirdOfAll, *model, scores);
  TestSequence sequence = model->NewSequence(request.prompt);
  std::vector<float> logits = model->Prefill(sequence, kPrompt);
  model->Evict(sequence, kept);
  std::vector<int32_t> expected = {ArgMax(logits)};
  int32_t prompt = 50;
  int32_t of_prompt = 0;
  int32_t of_output = 0;
  while (std::ssize(expected) < request.max_tokens) {
    logits = model->DecodeGreedily(sequence, logits);
    expected.push_back(ArgMax(logits));
    const int32_t held = sequence.computed - sequence.evicted;
    if (held % kBlockTokens != 0) continue;
    if (held - kBlockTokens < (sequence.computed + 2) / 3) continue;
    int32_t block = 0;
    if (prompt - kBlockTokens >= 25) {
      block = (prompt - 4) / kBlockTokens - 1;
      prompt -= kBlockTokens;
      ++of_prompt;
    } else {
      block = (prompt + kBlockTokens - 1) / kBlockTokens;
      if ((block + 1) * kBlockTokens > held - 4) continue;
      ++of_output;
    }
    std::vector<int32_t> stay;
    for (int32_t slot = 0; slot < held; ++slot) {
      if (slot / kBlockTokens != block) stay.push_back(slot);
    }
    model->Evict(sequence, std::vector(kept.size(), stay));
  }
  ASSERT_EQ(of_prompt, 3);
  ASSERT_GE(of_output, 4);

  const Answer answer = AskAlone(request);
  EXPECT_EQ(answer.token_ids, expected);
  EXPECT_EQ(answer.finish.evicted_tokens, kPrompt - 50 + (of_prompt + of_output) * kBlockTokens);
  EngineRequest keeping = request;
  keeping.eviction->output = false;
  const Answer kept_output = AskAlone(keeping);
  EXPECT_NE(kept_output.token_ids, expected) << "evicting output changes nothing here";
  EXPECT_EQ(kept_output.finish.evicted_tokens, kPrompt - 50);

  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  pair.Continue(**run);
  ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
  EXPECT_EQ((*run)->token_ids(), expected);
}

}  // namespace
}  // namespace tandem::token_eviction_test
