#pragma once

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::evicting_requests {

// Tokens that the test model knows, of a block of KV, and of a prompt.
inline constexpr int32_t kVocabSize = 288;
inline constexpr int32_t kBlockTokens = 8;
inline constexpr int32_t kPrompt = 150;

// A third of the tokens keeps its KV: of the prompt alone, and of all tokens.
inline constexpr TokenEviction kThird = {.policy = TokenEvictionPolicy::kSnapKv,
                                         .ratio = 3,
                                         .sink_tokens = 2,
                                         .recent_tokens = 4,
                                         .output = false};
inline constexpr TokenEviction kThirdOfAll = {
    .policy = TokenEvictionPolicy::kSnapKv, .ratio = 3, .sink_tokens = 2, .recent_tokens = 4};

// A greedy request whose prompt is random, of `id` as the seed, and evicted in this way.
inline EngineRequest Evicting(uint64_t id, TokenEviction eviction, int32_t prompt = kPrompt,
                              int32_t max_tokens = 20) {
  EngineRequest request = Greedy(id, RandomPrompt(id, prompt, kVocabSize), max_tokens);
  request.eviction = eviction;
  return request;
}

// What an engine said, and how it ended.
struct Answer {
  std::vector<int32_t> token_ids;
  FinishInfo finish;
};

// The answer of an engine that may have other requests; it must succeed.
inline Answer Ask(TestEngine& engine, const EngineRequest& request) {
  Recording recording;
  engine->Submit(request, recording.NewSink());
  const FinishInfo finish = recording.AwaitFinish();
  EXPECT_TRUE(finish.status.ok()) << finish.status;
  return {recording.token_ids(), finish};
}

// The answer of an engine of its own, which must be at rest afterwards.
inline Answer AskAlone(const EngineRequest& request, TestEngineSetup setup = {}) {
  setup.block_tokens = kBlockTokens;
  TestEngine engine(setup);
  Answer answer = Ask(engine, request);
  EXPECT_TRUE(engine.AtRest());
  return answer;
}

// How many tokens of the prompt lose their KV.
inline int32_t Evicted(const EngineRequest& request) {
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  return prompt - request.eviction->StoredTokens(prompt);
}

}  // namespace tandem::evicting_requests
