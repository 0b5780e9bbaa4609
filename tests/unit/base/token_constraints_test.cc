#include "base/token_constraints.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace tandem::token_constraints_test {
namespace {

using TokenIds = std::vector<int32_t>;

constexpr int32_t kVocab = 100;
const TokenIds kStops = {7, 9};

TokenIds ExcludedAfter(const TokenConstraints& constraints, const TokenIds& output) {
  TokenIds excluded;
  constraints.AppendExcluded(output, kStops, excluded);
  return excluded;
}

void ExpectRefused(const TokenConstraints& constraints, const std::string& why) {
  const absl::Status status = constraints.Validate(kVocab, kStops);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.ToString().find(why), std::string::npos) << status;
}

TEST(TokenConstraintsTest, StopTokensAreExcludedUntilTheOutputHasMinTokens) {
  const TokenConstraints constraints = {.min_tokens = 2};
  EXPECT_TRUE(constraints.ExcludesAfter(1));
  EXPECT_FALSE(constraints.ExcludesAfter(2));
  EXPECT_EQ(ExcludedAfter(constraints, {}), kStops);
  EXPECT_EQ(ExcludedAfter(constraints, {1}), kStops);
  EXPECT_EQ(ExcludedAfter(constraints, {1, 2}), TokenIds());
}

TEST(TokenConstraintsTest, TheLastTokenOfABadWordIsExcludedBehindItsOthers) {
  const TokenConstraints constraints = {.bad_words = {{5}, {1, 2, 3}, {2, 4}}};
  EXPECT_TRUE(constraints.ExcludesAfter(1000));
  EXPECT_EQ(ExcludedAfter(constraints, {}), TokenIds({5}));
  EXPECT_EQ(ExcludedAfter(constraints, {2}), TokenIds({5, 4}));
  EXPECT_EQ(ExcludedAfter(constraints, {9, 1, 2}), TokenIds({5, 3, 4}));
  EXPECT_EQ(ExcludedAfter(constraints, {1, 2, 9}), TokenIds({5}));
}

TEST(TokenConstraintsTest, WithoutConstraintsNothingIsExcluded) {
  EXPECT_FALSE(TokenConstraints().ExcludesAfter(0));
  EXPECT_TRUE(TokenConstraints().Validate(kVocab, kStops).ok());
}

TEST(TokenConstraintsTest, RefusesWhatIsOutOfRange) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused({.logit_bias = {{100, 1}}}, "logit_bias: token 100 must be in [0, 100)");
  ExpectRefused({.logit_bias = {{-1, 1}}}, "logit_bias: token -1");
  ExpectRefused({.logit_bias = {{3, 100.5f}}}, "logit_bias[3]=100.5 must be in [-100, 100]");
  ExpectRefused({.logit_bias = {{3, kNaN}}}, "logit_bias[3]=nan");
  ExpectRefused({.logit_bias = {{3, 1}, {4, 1}, {3, 2}}}, "logit_bias names token 3 twice");
  ExpectRefused({.logit_bias = std::vector<TokenBias>(kMaxLogitBiases + 1)}, "1025 entries");
  ExpectRefused({.min_tokens = -1}, "min_tokens=-1");
  ExpectRefused({.allowed_token_ids = {1, 100}}, "allowed_token_ids[1]=100");
  ExpectRefused({.allowed_token_ids = TokenIds(kMaxAllowedTokens + 1)}, "16385 ids");
  ExpectRefused({.bad_words = {{}}}, "a word without tokens");
  ExpectRefused({.bad_words = {{1, 100}}}, "bad_words[1]=100");
  ExpectRefused({.bad_words = std::vector<TokenIds>(2 * kMaxBadWords + 1, {1})}, "at most 256");
  EXPECT_TRUE(TokenConstraints({.logit_bias = {{99, -100}, {0, 100}}}).Validate(kVocab, {}).ok());
}

// The sampler writes to the logits of excluded tokens, so an id outside of them must not reach it.
TEST(TokenConstraintsTest, RefusesStopTokensOutsideTheVocabulary) {
  const TokenConstraints constraints = {.min_tokens = 1};
  const auto check = [&constraints](const TokenIds& stops) {
    return std::string(constraints.Validate(kVocab, stops).message());
  };
  EXPECT_EQ(check({2'000'000'000}), "stop_token_ids[0]=2000000000 must be in [0, 100)");
  EXPECT_EQ(check({-1, 3}), "stop_token_ids[0]=-1 must be in [0, 100)");
  EXPECT_EQ(check({3, kVocab}), "stop_token_ids[1]=100 must be in [0, 100)");
  EXPECT_EQ(check({0, kVocab - 1}), "");
}

TEST(TokenConstraintsTest, AForcedOutputHasItsTokensInOrder) {
  const TokenConstraints constraints = {.forced_token_ids = {5, 7, 5}};
  EXPECT_EQ(constraints.ForcedAfter(0), 5);
  EXPECT_EQ(constraints.ForcedAfter(1), 7);
  EXPECT_EQ(constraints.ForcedAfter(2), 5);
  EXPECT_EQ(constraints.ForcedAfter(3), -1);
  EXPECT_EQ(TokenConstraints().ForcedAfter(0), -1);
  EXPECT_TRUE(constraints.Validate(kVocab, {}).ok());
  EXPECT_TRUE(constraints.CheckForced(1, 3).ok());
  EXPECT_TRUE(TokenConstraints().CheckForced(4, 100).ok());
}

TEST(TokenConstraintsTest, RefusesWhatDoesNotGoWithAForcedOutput) {
  const auto why = [](TokenConstraints constraints, const TokenIds& stops = {}) {
    constraints.forced_token_ids = {1, 2};
    return std::string(constraints.Validate(kVocab, stops).message());
  };
  const std::string kWhy = " does not go with forced_token_ids: nothing is sampled";
  EXPECT_EQ(why({.logit_bias = {{3, 1}}}), "logit_bias of 1 tokens" + kWhy);
  EXPECT_EQ(why({.min_tokens = 1}), "min_tokens=1" + kWhy);
  EXPECT_EQ(why({.allowed_token_ids = {1, 2}}), "allowed_token_ids of 2 tokens" + kWhy);
  EXPECT_EQ(why({.bad_words = {{5}}}), "bad_words of 1 token sequences" + kWhy);
  EXPECT_EQ(why({}, kStops), "stop_token_ids of 2 tokens do not go with forced_token_ids");
  const TokenConstraints outside = {.forced_token_ids = {1, -1}};
  EXPECT_EQ(outside.Validate(kVocab, {}).message(), "forced_token_ids[1]=-1 must be in [0, 100)");
  const TokenConstraints forced = {.forced_token_ids = {1, 2}};
  EXPECT_EQ(forced.CheckForced(1, 3).message(),
            "max_tokens=3 contradicts forced_token_ids, which are 2: leave it out");
  EXPECT_EQ(forced.CheckForced(4, 2).message(),
            "forced_token_ids are one output: they do not go with 4 choices or beams (n, best_of, "
            "beam_search)");
}

TEST(TokenConstraintsTest, RefusesConstraintsThatLeaveNoToken) {
  ExpectRefused({.min_tokens = 1, .allowed_token_ids = {9, 7}}, "leave no token");
  ExpectRefused({.allowed_token_ids = {3, 4}, .bad_words = {{3}, {4}}}, "leave no token");
  EXPECT_TRUE(TokenConstraints({.allowed_token_ids = {9, 7}}).Validate(kVocab, kStops).ok());
  EXPECT_TRUE(TokenConstraints({.allowed_token_ids = {3, 4}, .bad_words = {{3}, {3, 4}}})
                  .Validate(kVocab, kStops)
                  .ok());
}

TEST(TokenConstraintsTest, MinTokensIsAtMostMaxTokens) {
  EXPECT_TRUE(TokenConstraints({.min_tokens = 4}).CheckMinTokens(4).ok());
  EXPECT_EQ(TokenConstraints({.min_tokens = 5}).CheckMinTokens(4).message(),
            "min_tokens=5 must be at most max_tokens=4");
}

}  // namespace
}  // namespace tandem::token_constraints_test
