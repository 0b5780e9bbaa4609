#include "kvstore/token_eviction/select_tokens.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvstore/token_eviction/attention_scores.h"

namespace tandem::select_tokens_test {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kPrompt = 300;

std::vector<float> RandomScores(uint64_t seed, int32_t tokens) {
  std::vector<float> scores(static_cast<size_t>(tokens));
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(UniformAt(seed, i));
  return scores;
}

std::vector<TokenEviction> AllKinds() {
  std::vector<TokenEviction> all;
  for (size_t policy = 0; policy < kTokenEvictionPolicyNames.size(); ++policy) {
    for (const double ratio : {1.5, 3.0, 8.0}) {
      for (const int32_t span : {1, 16}) {
        all.push_back({.policy = static_cast<TokenEvictionPolicy>(policy),
                       .ratio = ratio,
                       .span_tokens = span});
      }
    }
  }
  return all;
}

TEST(SelectTokensTest, EveryPolicyKeepsAsManyTokensAsItSaysAndEachOnce) {
  for (const TokenEviction& eviction : AllKinds()) {
    for (const int32_t tokens : {1, 36, 37, 53, 100, 299, 1024}) {
      const std::vector<int32_t> kept =
          SelectTokens(eviction, 0, 0, tokens, RandomScores(1, tokens));
      ASSERT_EQ(std::ssize(kept), eviction.StoredTokens(tokens)) << ToString(eviction);
      const std::set<int32_t> set(kept.begin(), kept.end());
      ASSERT_EQ(set.size(), kept.size());
      ASSERT_GE(*set.begin(), 0);
      ASSERT_LT(*set.rbegin(), tokens);
    }
  }
}

TEST(SelectTokensTest, EveryPolicyKeepsTheFirstAndTheLastTokensAtTheirEnds) {
  for (const TokenEviction& eviction : AllKinds()) {
    const std::vector<int32_t> kept =
        SelectTokens(eviction, 3, 1, kPrompt, RandomScores(2, kPrompt));
    for (int32_t i = 0; i < eviction.sink_tokens; ++i) EXPECT_EQ(kept[i], i);
    for (int32_t i = 1; i <= eviction.recent_tokens; ++i) {
      EXPECT_EQ(kept[kept.size() - i], kPrompt - i) << ToString(eviction) << " " << i;
    }
  }
}

TEST(SelectTokensTest, TheTokensWithTheHighestScoresAreKept) {
  const TokenEviction eviction{
      .policy = TokenEvictionPolicy::kH2oSum, .ratio = 2.5, .sink_tokens = 1, .recent_tokens = 1};
  const std::vector<float> scores = {0, 5, 1, 7, 2, 9, 3, 8, 4, 0};
  EXPECT_THAT(SelectTokens(eviction, 0, 0, 10, scores), ElementsAre(0, 5, 7, 9));
  EXPECT_THAT(SelectTokens({.policy = TokenEvictionPolicy::kH2oSum,
                            .ratio = 1.25,
                            .sink_tokens = 1,
                            .recent_tokens = 1},
                           0, 0, 10, scores),
              ElementsAre(0, 5, 7, 3, 1, 8, 6, 9))
      << "the highest score first";
}

TEST(SelectTokensTest, EqualScoresAreKeptFromTheFront) {
  const TokenEviction eviction{
      .policy = TokenEvictionPolicy::kH2oSum, .ratio = 2, .sink_tokens = 1, .recent_tokens = 1};
  EXPECT_THAT(SelectTokens(eviction, 0, 0, 8, std::vector<float>(8, 1.0f)),
              ElementsAre(0, 1, 2, 7));
}

TEST(SelectTokensTest, SpansAreRankedByTheSumOfTheirTokens) {
  const TokenEviction eviction{.policy = TokenEvictionPolicy::kH2oSum,
                               .ratio = 2.5,
                               .sink_tokens = 1,
                               .recent_tokens = 1,
                               .span_tokens = 2};
  // Spans [1,3) 9, [3,5) 8, [5,7) 10, [7,9) 4.
  const std::vector<float> scores = {0, 9, 0, 4, 4, 5, 5, 4, 0, 0};
  EXPECT_THAT(SelectTokens(eviction, 0, 0, 10, scores), ElementsAre(0, 5, 6, 9));
}

TEST(SelectTokensTest, SnapKvKeepsTheNeighboursOfAPeak) {
  const TokenEviction eviction{
      .policy = TokenEvictionPolicy::kSnapKv, .ratio = 3, .sink_tokens = 1, .recent_tokens = 1};
  std::vector<float> scores(30, 0.0f);
  scores[12] = 70;
  scores[22] = 7;
  EXPECT_THAT(SelectTokens(eviction, 0, 0, 30, scores),
              ElementsAre(0, 9, 10, 11, 12, 13, 14, 15, 19, 29));
}

// Two peaks of 60 and 30 raise the 7 tokens on either side by 4 and 2.
TEST(SelectTokensTest, H2oEmaAddsTheMeanOfTheNeighbours) {
  const TokenEviction eviction{
      .policy = TokenEvictionPolicy::kH2oEma, .ratio = 8, .sink_tokens = 1, .recent_tokens = 1};
  std::vector<float> scores(64, 0.0f);
  scores[12] = 60;
  scores[40] = 30;
  scores[50] = 3;
  scores[8] = 1;
  EXPECT_THAT(SelectTokens(eviction, 0, 0, 64, scores), ElementsAre(0, 12, 40, 8, 5, 6, 7, 63));
}

TEST(SelectTokensTest, StreamingLlmKeepsTheLastTokens) {
  const TokenEviction eviction{.policy = TokenEvictionPolicy::kStreamingLlm, .ratio = 3};
  const std::vector<int32_t> kept = SelectTokens(eviction, 0, 0, kPrompt, {});
  ASSERT_EQ(kept.size(), 100u);
  EXPECT_EQ(kept[3], 3);
  EXPECT_EQ(kept[4], kPrompt - 33) << "the oldest one goes first";
  EXPECT_EQ(kept[67], kPrompt - 96);
  EXPECT_EQ(kept[68], kPrompt - 32);
}

TEST(SelectTokensTest, RandomTokensDifferBetweenLayersAndHeadsAndNotBetweenCalls) {
  const TokenEviction eviction{.policy = TokenEvictionPolicy::kRandom, .ratio = 3};
  const std::vector<int32_t> first = SelectTokens(eviction, 0, 0, kPrompt, {});
  EXPECT_EQ(SelectTokens(eviction, 0, 0, kPrompt, {}), first);
  EXPECT_NE(SelectTokens(eviction, 1, 0, kPrompt, {}), first);
  EXPECT_NE(SelectTokens(eviction, 0, 1, kPrompt, {}), first);
}

// Each KV head's own scores count, so scores that layers or heads share would not pass.
TEST(AttentionScoresTest, SumsChunksOfEachLayerAndHead) {
  AttentionScores scores(2, 2, 4);
  scores.Add(0, std::vector<float>{1, 2, 10, 20});
  scores.Add(0, std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2});
  scores.Add(1, std::vector<float>{5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_THAT(scores.Of(0, 0), ElementsAre(2, 3, 1, 1));
  EXPECT_THAT(scores.Of(0, 1), ElementsAre(12, 22, 2, 2));
  EXPECT_THAT(scores.Of(1, 0), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(scores.Of(1, 1), ElementsAre(9, 10, 11, 12));
}

}  // namespace
}  // namespace tandem::select_tokens_test
