#include "base/token_eviction.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace tandem::token_eviction_test {
namespace {

TEST(TokenEvictionTest, ATextSaysThePolicyTheRatioAndWhatIsNotUsual) {
  const auto plain = ParseTokenEviction("snapkv:3");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(*plain, (TokenEviction{.policy = TokenEvictionPolicy::kSnapKv, .ratio = 3}));
  EXPECT_EQ(ToString(*plain), "snapkv:3");

  EXPECT_TRUE(plain->output);

  const auto full = ParseTokenEviction("h2o-ema:1.5,sink=16,recent=64,span=16,output=keep");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->ratio, 1.5);
  EXPECT_EQ(full->sink_tokens, 16);
  EXPECT_EQ(full->recent_tokens, 64);
  EXPECT_EQ(full->span_tokens, 16);
  EXPECT_FALSE(full->output);
  EXPECT_EQ(ToString(*full), "h2o-ema:1.5,sink=16,recent=64,span=16,output=keep");
  EXPECT_EQ(ToString(*ParseTokenEviction("snapkv:3,output=evict")), "snapkv:3");
}

TEST(TokenEvictionTest, EveryPolicyHasANameThatIsParsed) {
  for (size_t i = 0; i < kTokenEvictionPolicyNames.size(); ++i) {
    const auto policy = static_cast<TokenEvictionPolicy>(i);
    const auto parsed = ParseTokenEviction(std::string(Name(policy)) + ":2");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->policy, policy);
  }
}

TEST(TokenEvictionTest, WhatIsWrongInATextIsNamed) {
  const auto error = [](const char* text) {
    return std::string(ParseTokenEviction(text).status().message());
  };
  EXPECT_NE(error("pyramid:2").find("\"pyramid\" is unknown: use h2o-ema"), std::string::npos);
  for (const char* text :
       {"snapkv", "snapkv:", "snapkv:1", "snapkv:0.5", "snapkv:65", "snapkv:nan", "snapkv:two"}) {
    EXPECT_NE(error(text).find("must be a number above 1"), std::string::npos) << text;
  }
  EXPECT_NE(error("snapkv:2,sinks=4").find("\"sinks\" is unknown"), std::string::npos);
  for (const char* text : {"snapkv:2,span=3", "snapkv:2,span=0", "snapkv:2,span=131072"}) {
    EXPECT_NE(error(text).find("must be a power of two from 1"), std::string::npos) << text;
  }
  EXPECT_NE(error("snapkv:2,output=some").find("must be keep or evict"), std::string::npos);
  EXPECT_NE(error("snapkv:2,sink=-1").find("must be a number from 0"), std::string::npos);
  EXPECT_NE(error("snapkv:2,sink=0,recent=0").find("keeps no token"), std::string::npos);
}

// A step that asked for more would fail, and take the other requests in it with it.
TEST(TokenEvictionTest, NoWindowHasMoreRowsThanColumnMassTakes) {
  for (size_t i = 0; i < kTokenEvictionPolicyNames.size(); ++i) {
    const TokenEviction eviction{.policy = static_cast<TokenEvictionPolicy>(i)};
    EXPECT_LE(eviction.WindowTokens(), 1024);
  }
}

TEST(TokenEvictionTest, AsManyTokensAreKeptAsTheRatioSays) {
  const TokenEviction thirds{.ratio = 3};
  EXPECT_EQ(thirds.StoredTokens(1024), 342);
  EXPECT_EQ(thirds.StoredTokens(1023), 341);
}

TEST(TokenEvictionTest, SinksAndRecentTokensAreAlwaysKept) {
  const TokenEviction eviction{.ratio = 64};
  EXPECT_EQ(eviction.StoredTokens(1), 1);
  EXPECT_EQ(eviction.StoredTokens(37), 37);
  EXPECT_EQ(eviction.StoredTokens(38), 36);
  EXPECT_EQ(eviction.StoredTokens(1024), 36);
}

// Between the ratio and one span more, and what is left over at the end of the spans is kept.
TEST(TokenEvictionTest, SpansAreKeptAsAWhole) {
  const TokenEviction spans{.ratio = 2, .span_tokens = 16};
  for (int32_t tokens = 1; tokens < 600; ++tokens) {
    const int32_t stored = spans.StoredTokens(tokens);
    ASSERT_GE(stored, 1);
    ASSERT_LE(stored, tokens);
    ASSERT_EQ((tokens - stored) % 16, 0) << tokens;
    if (tokens <= 52) {
      ASSERT_EQ(stored, tokens);
    } else if (tokens / 2 > 36 + 15) {
      ASSERT_GE(stored * 2, tokens);
      ASSERT_LT(stored, (tokens + 1) / 2 + 16);
    }
  }
}

}  // namespace
}  // namespace tandem::token_eviction_test
