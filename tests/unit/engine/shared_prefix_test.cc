// The prefix cache as a request sees it: fewer tokens computed, fewer bytes sent, the same answer.

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::shared_prefix_test {
namespace {

constexpr int32_t kVocabSize = 288;
constexpr int32_t kBlockTokens = 8;

EngineRequest WithPrompt(uint64_t id, std::vector<int32_t> prompt) {
  EngineRequest request = Greedy(id, std::move(prompt), 12);
  request.sampling = {.temperature = 0.8f, .seed = id};
  return request;
}

// `shared` tokens that all have, and `own` that only `id` has.
EngineRequest Sharing(uint64_t id, int32_t shared, int32_t own) {
  std::vector<int32_t> prompt = RandomPrompt(1, shared, kVocabSize);
  const std::vector<int32_t> rest = RandomPrompt(1000 + id, own, kVocabSize);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return WithPrompt(id, std::move(prompt));
}

struct Answer {
  std::vector<int32_t> token_ids;
  int32_t cached_tokens = 0;
};

Answer Ask(TestEngine& engine, const EngineRequest& request) {
  Recording recording;
  engine->Submit(request, recording.NewSink());
  const FinishInfo finish = recording.AwaitFinish();
  EXPECT_TRUE(finish.status.ok()) << finish.status;
  return {recording.token_ids(), finish.cached_tokens};
}

class SharedPrefixTest : public testing::Test {
 protected:
  TestEngine cold_{{.block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff}};
  TestEngine warm_{{.block_tokens = kBlockTokens}};
};

TEST_F(SharedPrefixTest, WhatWasComputedIsNotComputedAgain) {
  EXPECT_EQ(Ask(warm_, Sharing(1, 48, 20)).cached_tokens, 0);
  for (uint64_t id = 2; id < 6; ++id) {
    const EngineRequest request = Sharing(id, 48, 20);
    const uint64_t before = warm_->stats().prompt_tokens;
    const Answer answer = Ask(warm_, request);
    EXPECT_GE(answer.cached_tokens, 48);
    EXPECT_LE(answer.cached_tokens, 50) << "own tokens that agree by chance";
    EXPECT_EQ(warm_->stats().prompt_tokens - before, 68u - answer.cached_tokens);
    EXPECT_EQ(answer.token_ids, Ask(cold_, request).token_ids);
  }
  EXPECT_EQ(cold_->stats().kv.hit_tokens, 0);
  EXPECT_TRUE(warm_.AtRest());
}

// A whole prompt that is cached: only its last token is computed, into a copy of its last block.
TEST_F(SharedPrefixTest, TheSamePromptAgain) {
  for (const int32_t length : {2, 7, 8, 9, 16, 40, 41}) {
    SCOPED_TRACE(length);
    const EngineRequest first = WithPrompt(1, RandomPrompt(length, length, kVocabSize));
    const Answer expected = Ask(cold_, first);
    EXPECT_EQ(Ask(warm_, first).token_ids, expected.token_ids);
    const Answer again = Ask(warm_, first);
    EXPECT_EQ(again.token_ids, expected.token_ids);
    // 12 tokens were decoded behind it, so that its last block was full when it was let go of.
    EXPECT_EQ(again.cached_tokens, length - 1);
  }
  EXPECT_TRUE(warm_.AtRest());
}

// A conversation: each prompt holds the one before and its answer.
TEST_F(SharedPrefixTest, DecodedTokensAreCachedToo) {
  EngineRequest turn = WithPrompt(1, RandomPrompt(1, 20, kVocabSize));
  for (int i = 0; i < 4; ++i) {
    const Answer answer = Ask(warm_, turn);
    EXPECT_EQ(answer.token_ids, Ask(cold_, turn).token_ids);
    if (i > 0) {
      const auto before = static_cast<int32_t>(turn.prompt.size()) - 5;
      EXPECT_GE(answer.cached_tokens, (before - 1) / kBlockTokens * kBlockTokens);
    }
    turn.prompt.insert(turn.prompt.end(), answer.token_ids.begin(), answer.token_ids.end());
    const std::vector<int32_t> next = RandomPrompt(50 + i, 5, kVocabSize);
    turn.prompt.insert(turn.prompt.end(), next.begin(), next.end());
  }
}

TEST_F(SharedPrefixTest, WhatIsAboutToBeEvictedGoesToTheHost) {
  TestEngine small({.num_blocks = 16, .block_tokens = kBlockTokens, .host_bytes = 8 << 20});
  for (uint64_t id = 1; id <= 8; ++id) {
    const EngineRequest request = WithPrompt(id, RandomPrompt(id, 40, kVocabSize));
    EXPECT_EQ(Ask(small, request).token_ids, Ask(cold_, request).token_ids);
  }
  // The copies run beside the engine; without them this would never end.
  while (small->stats().kv.host_prefix_blocks == 0) std::this_thread::yield();
}

TEST_F(SharedPrefixTest, AnotherSaltSharesNothing) {
  EngineRequest request = Sharing(1, 48, 8);
  request.cache_salt = "red";
  const Answer red = Ask(warm_, request);
  request.cache_salt = "blue";
  EXPECT_EQ(Ask(warm_, request).cached_tokens, 0);
  request.cache_salt = "";
  EXPECT_EQ(Ask(warm_, request).cached_tokens, 0);
  request.cache_salt = "red";
  const Answer again = Ask(warm_, request);
  EXPECT_GT(again.cached_tokens, 0);
  EXPECT_EQ(again.token_ids, red.token_ids);
}

// While one computes a prefix, another that needs it waits for it.
TEST_F(SharedPrefixTest, APrefixUnderWayIsNotComputedTwice) {
  TestEngine engine({.block_tokens = kBlockTokens, .scheduler = {.max_step_tokens = 32}});
  engine.gate().Allow(0);
  std::vector<Recording> recordings(8);
  for (uint64_t id = 0; id < recordings.size(); ++id) {
    engine->Submit(Sharing(id, 160, 9), recordings[id].NewSink());
  }
  engine.gate().Open();
  for (uint64_t id = 0; id < recordings.size(); ++id) {
    EXPECT_TRUE(recordings[id].AwaitFinish().status.ok());
    EXPECT_EQ(recordings[id].token_ids(), Ask(cold_, Sharing(id, 160, 9)).token_ids) << id;
  }
  EXPECT_LE(engine->stats().prompt_tokens, 160u + 8 * 9u + 8u);
  EXPECT_TRUE(engine.AtRest());
}

TEST_F(SharedPrefixTest, TheEndOfTheRequestThatComputesAPrefixReleasesThoseThatWaitForIt) {
  TestEngine engine({.block_tokens = kBlockTokens, .scheduler = {.max_step_tokens = 32}});
  engine.gate().Allow(1);
  Recording first;
  Recording second;
  engine->Submit(Sharing(1, 160, 9), first.NewSink());
  engine.gate().AwaitHeld();
  engine->Submit(Sharing(2, 160, 9), second.NewSink());
  engine->Cancel(RequestId(1), absl::OkStatus());
  engine.gate().Open();
  EXPECT_TRUE(second.AwaitFinish().status.ok());
  EXPECT_EQ(first.AwaitFinish().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(engine.AtRest());
}

// The cached prefix fills the pool, and to continue it takes a copy of its last block. There is no
// room for that, so the prompt is computed again.
TEST_F(SharedPrefixTest, APromptWhosePrefixFillsThePoolIsComputedAgain) {
  TestEngine engine({.num_blocks = 3, .block_tokens = kBlockTokens});
  EngineRequest request = Greedy(1, RandomPrompt(1, 20, kVocabSize), 5);
  const Answer answer = Ask(engine, request);
  request.id = RequestId(2);
  EXPECT_EQ(Ask(engine, request).token_ids, answer.token_ids);
  EXPECT_TRUE(engine.AtRest());
}

// 100 requests of 1,600 tokens, the first 1,500 of which they share.
TEST(ManyWithOnePrefixTest, ComputeATenthOfTheirTokens) {
  constexpr uint64_t kRequests = 100;
  const TestEngineSetup setup{.checkpoint = "models/sample",
                              .num_threads = 2,
                              .num_blocks = 1024,
                              .block_tokens = 16,
                              .scheduler = {.max_sequences = 8}};
  TestEngine warm(setup);
  std::vector<Recording> recordings(kRequests);
  for (uint64_t id = 0; id < kRequests; ++id) {
    warm->Submit(Sharing(id, 1500, 100), recordings[id].NewSink());
  }
  int64_t cached_tokens = 0;
  for (const Recording& recording : recordings) {
    const FinishInfo finish = recording.AwaitFinish();
    ASSERT_TRUE(finish.status.ok()) << finish.status;
    cached_tokens += finish.cached_tokens;
  }
  const auto computed = static_cast<int64_t>(warm->stats().prompt_tokens);
  EXPECT_EQ(computed + cached_tokens, int64_t{kRequests} * 1600);
  EXPECT_LE(computed * 10, int64_t{kRequests} * 1600);
  EXPECT_TRUE(warm.AtRest());

  TestEngineSetup without = setup;
  without.prefix_caching = PrefixCaching::kOff;
  TestEngine cold(without);
  for (uint64_t id = 0; id < kRequests; id += 20) {
    EXPECT_EQ(recordings[id].token_ids(), Ask(cold, Sharing(id, 1500, 100)).token_ids) << id;
  }
}

// The cache gives way: with little room each request still gets its blocks and its answer.
TEST_F(SharedPrefixTest, CachedBlocksMakeRoom) {
  TestEngine engine({.num_blocks = 14, .block_tokens = kBlockTokens});
  for (uint64_t id = 0; id < 30; ++id) {
    const EngineRequest request = Sharing(id % 7, 24, 60);
    EXPECT_EQ(Ask(engine, request).token_ids, Ask(cold_, request).token_ids);
  }
  EXPECT_GT(engine->stats().kv.evicted_blocks, 0);
  EXPECT_TRUE(engine.AtRest());
}

TEST_F(SharedPrefixTest, TheDecodeWorkersBlocksAreNotSentAgain) {
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kTcp);
  uint64_t all_bytes = 0;
  for (uint64_t id = 0; id < 5; ++id) {
    const EngineRequest request = Sharing(id, 64, 17);
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ((*run)->reservation.cached_tokens, id == 0 ? 0 : 8 * kBlockTokens);
    pair.Continue(**run);
    ASSERT_TRUE(pair.AwaitEnd(**run).ok());
    EXPECT_EQ((*run)->token_ids(), Ask(cold_, request).token_ids);
    const FinishInfo prefill = (*run)->prefill.AwaitFinish();
    EXPECT_EQ(prefill.cached_tokens >= 64, id > 0);
    if (id == 0) {
      all_bytes = prefill.kv.raw_bytes;
    } else {
      EXPECT_EQ(prefill.kv.raw_bytes * 81, all_bytes * 17) << "17 of 81 tokens";
    }
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

// All of the prompt's blocks are there already: the commit is all that travels.
TEST_F(SharedPrefixTest, NothingToSend) {
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  const EngineRequest request = WithPrompt(1, RandomPrompt(1, 64, kVocabSize));
  for (int i = 0; i < 3; ++i) {
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ((*run)->reservation.cached_tokens, i == 0 ? 0 : 8 * kBlockTokens);
    pair.Continue(**run);
    ASSERT_TRUE(pair.AwaitEnd(**run).ok());
    EXPECT_EQ((*run)->token_ids(), Ask(cold_, request).token_ids);
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
}

}  // namespace
}  // namespace tandem::shared_prefix_test
