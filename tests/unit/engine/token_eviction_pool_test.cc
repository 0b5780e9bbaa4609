// What eviction of KV leaves in the pool of blocks: how many blocks a sequence holds, what returns,
// what the prefix cache keeps, and how sequences share, wait and are preempted.

#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/evicting_requests.h"

namespace tandem::token_eviction_pool_test {
namespace {

using evicting_requests::Answer;
using evicting_requests::Ask;
using evicting_requests::AskAlone;
using evicting_requests::Evicting;
using evicting_requests::kBlockTokens;
using evicting_requests::kPrompt;
using evicting_requests::kThird;
using evicting_requests::kThirdOfAll;

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

}  // namespace
}  // namespace tandem::token_eviction_pool_test
