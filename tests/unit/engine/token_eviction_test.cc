// Eviction of KV at the end of prompts: the tokens that stay are the right ones in each layer, at
// their true positions; blocks return to the pool; and no route, batch or preemption changes an
// answer where it does not change what stays.

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/token_eviction/select_tokens.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::token_eviction_test {
namespace {

constexpr int32_t kVocabSize = 288;
constexpr int32_t kBlockTokens = 8;
constexpr int32_t kPrompt = 150;

// Of the prompt alone, and of all tokens.
constexpr TokenEviction kThird = {.policy = TokenEvictionPolicy::kSnapKv,
                                  .ratio = 3,
                                  .sink_tokens = 2,
                                  .recent_tokens = 4,
                                  .output = false};
constexpr TokenEviction kThirdOfAll = {
    .policy = TokenEvictionPolicy::kSnapKv, .ratio = 3, .sink_tokens = 2, .recent_tokens = 4};

EngineRequest Evicting(uint64_t id, TokenEviction eviction, int32_t prompt = kPrompt,
                       int32_t max_tokens = 20) {
  EngineRequest request = Greedy(id, RandomPrompt(id, prompt, kVocabSize), max_tokens);
  request.eviction = eviction;
  return request;
}

std::vector<TokenEviction> AllPolicies() {
  std::vector<TokenEviction> all;
  for (size_t i = 0; i < kTokenEvictionPolicyNames.size(); ++i) {
    all.push_back(kThird);
    all.back().policy = static_cast<TokenEvictionPolicy>(i);
  }
  return all;
}

struct Answer {
  std::vector<int32_t> token_ids;
  FinishInfo finish;
};

Answer Ask(TestEngine& engine, const EngineRequest& request) {
  Recording recording;
  engine->Submit(request, recording.NewSink());
  const FinishInfo finish = recording.AwaitFinish();
  EXPECT_TRUE(finish.status.ok()) << finish.status;
  return {recording.token_ids(), finish};
}

Answer AskAlone(const EngineRequest& request, TestEngineSetup setup = {}) {
  setup.block_tokens = kBlockTokens;
  TestEngine engine(setup);
  Answer answer = Ask(engine, request);
  EXPECT_TRUE(engine.AtRest());
  return answer;
}

int32_t Evicted(const EngineRequest& request) {
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  return prompt - request.eviction->StoredTokens(prompt);
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
  std::vector<std::vector<int32_t>> kept;
  for (int32_t layer = 0; layer < model->config().num_layers; ++layer) {
    kept.push_back(SelectTokens(GetParam(), layer, kPrompt, scores[layer]));
  }
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
  std::vector<std::vector<int32_t>> kept;
  for (int32_t layer = 0; layer < model->config().num_layers; ++layer) {
    kept.push_back(SelectTokens(kThirdOfAll, layer, kPrompt, scores[layer]));
  }
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

// Beside its third, a sequence holds at most what it has decoded since its last block was full.
TEST(TokenEvictionPoolTest, AThirdOfAllTokensHasKvAtEveryStep) {
  constexpr int32_t kOutput = 100;
  TestEngine engine(
      {.num_blocks = 80, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff});
  Recording recording;
  engine.gate().Allow(2);
  engine->Submit(Evicting(1, kThirdOfAll, kPrompt, kOutput), recording.NewSink());
  for (int32_t output = 2; output < kOutput - 1; ++output) {
    ASSERT_TRUE(recording.AwaitTokens(static_cast<size_t>(output)));
    engine.gate().Allow(1);
    const KvStats kv = engine->stats().kv;
    const int32_t held = (kv.total_blocks - kv.free_blocks) * kBlockTokens;
    // The count may be of the step before this one or of the one behind it.
    ASSERT_LE(held, (kPrompt + output + 1) / 3 + 3 * kBlockTokens) << output;
  }
  engine.gate().Open();
  EXPECT_TRUE(recording.AwaitFinish().status.ok());
  EXPECT_TRUE(engine.AtRest());
}

// Six wait for a pool of 64 blocks, and each has 30 blocks of tokens at its end.
TEST(TokenEvictionPoolTest, SequencesThatEvictOutputFindRoomTogether) {
  constexpr size_t kRequests = 6;
  for (const bool evicts : {false, true}) {
    SCOPED_TRACE(evicts);
    TestEngine engine(
        {.num_blocks = 64, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff});
    std::vector<Recording> recordings(kRequests);
    const auto submit = [&](size_t i) {
      EngineRequest request = Evicting(i + 1, kThirdOfAll, 40, 200);
      if (!evicts) request.eviction.reset();
      engine->Submit(std::move(request), recordings[i].NewSink());
    };
    engine.gate().Allow(0);
    submit(0);
    engine.gate().AwaitHeld();
    for (size_t i = 1; i < kRequests; ++i) submit(i);  // the next step finds all of them
    engine.gate().Allow(1);
    engine.gate().AwaitHeld();
    engine.gate().Allow(1);
    engine.gate().AwaitHeld();
    const SchedulerStats stats = engine->stats().scheduler;
    engine.gate().Open();
    EXPECT_EQ(stats.prefilling + stats.running, evicts ? 4 : 2);
    for (Recording& recording : recordings) {
      const FinishInfo finish = recording.AwaitFinish();
      EXPECT_TRUE(finish.status.ok()) << finish.status;
      EXPECT_EQ(finish.preemptions, 0);
    }
  }
}

TEST(TokenEvictionPoolTest, BlocksOfEvictedTokensReturnToThePool) {
  TestEngine engine(
      {.num_blocks = 64, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff});
  engine.gate().Allow(2);  // the prompt, and one decode
  Recording recording;
  engine->Submit(Evicting(1, kThird), recording.NewSink());
  ASSERT_TRUE(recording.AwaitTokens(2));
  engine.gate().Allow(1);
  ASSERT_TRUE(recording.AwaitTokens(3));
  const KvStats kv = engine->stats().kv;
  EXPECT_EQ(kv.total_blocks - kv.free_blocks, (50 + 2 + kBlockTokens - 1) / kBlockTokens);
  EXPECT_EQ(engine->stats().evictions, 1u);
  EXPECT_EQ(engine->stats().evicted_tokens, 100u);
  EXPECT_LE(engine->stats().scheduler.decode_context_tokens, 50 + 3);
  engine.gate().Open();
  EXPECT_TRUE(recording.AwaitFinish().status.ok());
  EXPECT_TRUE(engine.AtRest());
}

TEST(TokenEvictionPoolTest, ThePrefixCacheKeepsTheWholePromptAndNothingElse) {
  TestEngine engine({.block_tokens = kBlockTokens});
  const EngineRequest request = Evicting(1, kThird);
  const Answer first = Ask(engine, request);
  // The queries that rank its tokens are computed again.
  EngineRequest again = request;
  again.id = RequestId(2);
  const Answer second = Ask(engine, again);
  EXPECT_EQ(second.finish.cached_tokens, kPrompt - 64);
  EXPECT_EQ(second.token_ids, first.token_ids);
  // A request that keeps everything gets the whole prompt from the cache, and nothing behind it.
  EngineRequest longer = Greedy(3, request.prompt, 10);
  longer.prompt.insert(longer.prompt.end(), first.token_ids.begin(), first.token_ids.end());
  const Answer exact = Ask(engine, longer);
  EXPECT_EQ(exact.finish.cached_tokens, kPrompt / kBlockTokens * kBlockTokens);
  EXPECT_EQ(exact.token_ids, AskAlone(longer).token_ids);
  EXPECT_TRUE(engine.AtRest());
}

TEST(TokenEvictionPoolTest, ADecodeWorkerKeepsNothingOfItForOthers) {
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  EngineRequest request = Evicting(1, kThird);
  std::vector<int32_t> expected;
  for (uint64_t id = 1; id <= 3; ++id) {
    request.id = RequestId(id);
    if (id == 3) {
      request.eviction.reset();
      expected = AskAlone(request).token_ids;
    } else {
      expected = AskAlone(request).token_ids;
    }
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ((*run)->reservation.cached_tokens, 0);
    pair.Continue(**run);
    ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
    EXPECT_EQ((*run)->token_ids(), expected);
  }
}

TEST(TokenEvictionPoolTest, ChoicesAndBeamsShareWhatStays) {
  EngineRequest choices = Evicting(1, kThirdOfAll);
  choices.n = 3;
  choices.sampling = {.temperature = 0.9f, .seed = 5};
  EngineRequest beams = Evicting(2, kThirdOfAll);
  beams.beams = BeamParams{.width = 3};
  beams.n = 2;
  for (const EngineRequest& request : {choices, beams}) {
    TestEngine engine({.num_blocks = 128, .block_tokens = kBlockTokens});
    Recording alone;
    engine->Submit(request, alone.NewSink());
    ASSERT_TRUE(alone.AwaitFinish().status.ok()) << alone.AwaitFinish().status;
    EXPECT_TRUE(engine.AtRest());
    HandoffPair pair({.num_blocks = 128, .block_tokens = kBlockTokens}, Wire::kLoopback);
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
    for (int32_t choice = 0; choice < request.n; ++choice) {
      EXPECT_EQ((*run)->token_ids(choice), alone.token_ids(choice));
      EXPECT_EQ(std::ssize(alone.token_ids(choice)), request.max_tokens);
    }
    EXPECT_TRUE(pair.prefill().AtRest());
    EXPECT_TRUE(pair.decode().AtRest());
  }
}

// A choice that another worker began is computed behind the evicted prompt. It evicts anew, so its
// answer may be another than that of the lost worker, but it is the same on every route.
TEST(TokenEvictionPoolTest, AnAnswerThatWasBegunElsewhereGoesOn) {
  EngineRequest request = Evicting(1, kThird, kPrompt, 30);
  const std::vector<int32_t> whole = AskAlone(request).token_ids;
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  request.so_far = {{.token_ids = {whole.begin(), whole.begin() + 11}}};
  (*run)->request.so_far = request.so_far;
  pair.Continue(**run);
  ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
  EXPECT_EQ((*run)->decode.token_ids(), std::vector(whole.begin() + 11, whole.end()));
  EXPECT_TRUE(pair.decode().AtRest());

  const Answer unified = AskAlone(request);
  EXPECT_EQ(unified.token_ids.size(), 19u);
  EXPECT_EQ(unified.finish.evicted_tokens, Evicted(request));
}

// A pool that is too small for all: sequences are computed again, with their whole prompt and
// output, or come back from the host. They have evicted output before.
TEST(TokenEvictionPoolTest, PreemptedSequencesEndWell) {
  constexpr int32_t kOutput = 150;
  for (const int64_t host_bytes : {int64_t{0}, int64_t{8} << 20}) {
    TestEngine engine({.num_blocks = 48,
                       .block_tokens = kBlockTokens,
                       .prefix_caching = PrefixCaching::kOff,
                       .host_bytes = host_bytes});
    ExpectShortOutputs(engine);
    std::vector<EngineRequest> requests;
    for (uint64_t id = 100; id < 112; ++id) {
      requests.push_back(Evicting(id, kThirdOfAll, 30 + static_cast<int32_t>(id % 5) * 2, kOutput));
    }
    std::vector<Recording> recordings(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine->Submit(requests[i], recordings[i].NewSink());
    }
    int32_t preemptions = 0;
    for (Recording& recording : recordings) {
      const FinishInfo finish = recording.AwaitFinish();
      EXPECT_TRUE(finish.status.ok()) << finish.status;
      EXPECT_EQ(recording.token_ids().size(), size_t{kOutput});
      EXPECT_GT(finish.evicted_tokens, finish.evicted_tokens % kBlockTokens + 2 * kBlockTokens);
      preemptions += finish.preemptions;
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_TRUE(engine.AtRest());
  }
}

// A decode worker whose sequences are preempted computes their prompts itself, whole at first.
TEST(TokenEvictionPoolTest, ADecodeWorkerComputesEvictedPromptsAgain) {
  HandoffPair pair(
      {.num_blocks = 128, .block_tokens = kBlockTokens},
      {.num_blocks = 32, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff},
      Wire::kLoopback);
  std::vector<Disaggregated*> runs;
  for (uint64_t id = 1; id <= 4; ++id) {
    const auto run = pair.Start(Evicting(id, kThird, 90, 60));
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    runs.push_back(*run);
  }
  for (Disaggregated* run : runs) {
    ASSERT_EQ(pair.AwaitEnd(*run), absl::OkStatus());
    EXPECT_EQ(run->token_ids().size(), 60u);
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST(TokenEvictionPoolTest, ADecodeWorkerThatSetsAllRoomAsideGetsAllTokens) {
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  const EngineRequest request = Evicting(1, kThird);
  EngineRequest whole = request;
  whole.eviction.reset();
  const absl::StatusOr<Reservation> reservation = pair.decode().ReserveFor(whole);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  EXPECT_EQ(reservation->stored_tokens, kPrompt);
  Recording prefill;
  pair.prefill()->SubmitPrefill(request,
                                {.data_address = pair.decode().transport().address(),
                                 .reservation = reservation->id,
                                 .epoch = reservation->epoch,
                                 .stored_tokens = reservation->stored_tokens},
                                prefill.NewSink());
  const FinishInfo sent = prefill.AwaitFinish();
  EXPECT_TRUE(sent.status.ok()) << sent.status;
  EXPECT_EQ(sent.evicted_tokens, 0);
  EXPECT_GE(sent.kv.wire_bytes, sent.kv.raw_bytes);
}

TEST(TokenEvictionPoolTest, APromptThatNeedsTooMuchRoomToEvictKeepsAllOfItsKv) {
  // 19 blocks for the prompt, 7 for what stays of it and of its output.
  TestEngine engine({.num_blocks = 25, .block_tokens = kBlockTokens});
  const EngineRequest request = Evicting(1, kThird, kPrompt, 2);
  EngineRequest whole = request;
  whole.eviction.reset();
  const Answer answer = Ask(engine, request);
  EXPECT_EQ(answer.finish.evicted_tokens, 0);
  EXPECT_EQ(answer.token_ids, AskAlone(whole).token_ids);
  EXPECT_TRUE(engine.AtRest());
}

// What arrives there fits, and so does the whole prompt, but not both. Output is evicted there
// anyway.
TEST(TokenEvictionPoolTest, ADecodeWorkerTakesWhatItCouldNotEvictItself) {
  for (const TokenEviction& eviction : {kThird, kThirdOfAll}) {
    HandoffPair pair(
        {.num_blocks = 128, .block_tokens = kBlockTokens},
        {.num_blocks = 25, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff},
        Wire::kLoopback);
    const EngineRequest request = Evicting(1, eviction, kPrompt, 40);
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
    const Answer alone = AskAlone(request);
    EXPECT_EQ((*run)->token_ids(), alone.token_ids);
    EXPECT_EQ((*run)->decode.AwaitFinish().evicted_tokens, alone.finish.evicted_tokens);
    EXPECT_TRUE(pair.decode().AtRest());
  }
}

}  // namespace
}  // namespace tandem::token_eviction_test
