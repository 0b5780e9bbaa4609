#include "server/eval/prediction_change.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::prediction_change_test {
namespace {

using Distribution = std::vector<std::pair<int32_t, double>>;  // token, probability

v1::TokenLogprobs Token(int32_t id, double probability, const Distribution& top) {
  v1::TokenLogprobs token;
  token.mutable_sampled()->set_token_id(id);
  token.mutable_sampled()->set_logprob(static_cast<float>(std::log(probability)));
  for (const auto& [other, share] : top) {
    v1::TokenLogprob& entry = *token.add_top();
    entry.set_token_id(other);
    entry.set_logprob(static_cast<float>(std::log(share)));
  }
  return token;
}

double Kl(const Distribution& baseline, const Distribution& tested) {
  return KlLowerBound(Token(1, 0.1, baseline), Token(1, 0.1, tested));
}

TEST(KlLowerBoundTest, IsTheDivergenceOverTheTopAndTheRest) {
  const double expected =
      0.5 * std::log(0.5 / 0.25) + 0.3 * std::log(0.3 / 0.5) + 0.2 * std::log(0.2 / 0.25);
  EXPECT_NEAR(Kl({{7, 0.5}, {8, 0.3}}, {{8, 0.5}, {7, 0.25}}), expected, 1e-6);
}

TEST(KlLowerBoundTest, IsNothingBetweenEqualDistributions) {
  EXPECT_EQ(Kl({{7, 0.5}, {8, 0.3}}, {{7, 0.5}, {8, 0.3}}), 0);
  EXPECT_EQ(Kl({{7, 1}}, {{7, 1}}), 0);
}

// What the other does not name counts with the rest, so that nothing is made up.
TEST(KlLowerBoundTest, TokensThatOnlyTheBaselineNamesAreInTheRest) {
  const double expected = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(Kl({{7, 0.5}, {8, 0.3}}, {{7, 0.25}, {9, 0.3}}), expected, 1e-6);
  const v1::TokenLogprobs sampled = Token(8, 0.5, {{9, 0.3}});
  EXPECT_GT(KlLowerBound(Token(8, 0.1, {{8, 0.1}}), sampled), 0.2) << "the output's token is known";
}

// Over the whole vocabulary, of which the lists are parts, it is larger.
TEST(KlLowerBoundTest, IsAtMostTheDivergenceOverTheWholeVocabulary) {
  const Distribution baseline = {{1, 0.4}, {2, 0.3}, {3, 0.2}, {4, 0.1}};
  const Distribution tested = {{4, 0.4}, {1, 0.3}, {2, 0.2}, {3, 0.1}};
  const double whole = Kl(baseline, tested);
  for (size_t known = 1; known <= 3; ++known) {
    const auto first = static_cast<std::ptrdiff_t>(known);
    const double bound =
        Kl({baseline.begin(), baseline.begin() + first}, {tested.begin(), tested.begin() + first});
    EXPECT_LE(bound, whole + 1e-6);
    EXPECT_GE(bound, 0);
  }
}

TEST(KlLowerBoundTest, RoundingIsNoDivergence) {
  EXPECT_LT(Kl({{7, 0.7}, {8, 0.3 - 4e-8}}, {{7, 0.7}, {8, 0.3}}), 1e-6);
}

TEST(ComparePredictionsTest, MeansAreOverTheOutput) {
  const std::vector<v1::TokenLogprobs> baseline = {Token(1, 0.5, {{1, 0.5}}),
                                                   Token(2, 0.25, {{3, 0.5}})};
  const std::vector<v1::TokenLogprobs> tested = {Token(1, 0.25, {{1, 0.25}}),
                                                 Token(2, 0.125, {{2, 0.5}, {3, 0.25}})};
  const auto change = ComparePredictions(baseline, tested);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_NEAR(change->baseline_perplexity, std::sqrt(8.0), 1e-6);
  EXPECT_NEAR(change->perplexity, std::sqrt(32.0), 1e-6);
  EXPECT_NEAR(change->perplexity_change_percent(), 100, 1e-4);
  EXPECT_EQ(change->top1_agreement, 0.5);
  EXPECT_NEAR(change->kl_nats,
              (KlLowerBound(baseline[0], tested[0]) + KlLowerBound(baseline[1], tested[1])) / 2,
              1e-12);
}

TEST(AreMostProbableTest, OneTokenThatIsNotEndsIt) {
  const v1::TokenLogprobs first = Token(1, 0.5, {{1, 0.5}, {2, 0.3}});
  const v1::TokenLogprobs second = Token(2, 0.3, {{1, 0.5}, {2, 0.3}});
  EXPECT_TRUE(AreMostProbable(std::vector{first, first}));
  EXPECT_FALSE(AreMostProbable(std::vector{first, second}));
  EXPECT_FALSE(AreMostProbable(std::vector{second, first}));
  EXPECT_FALSE(AreMostProbable(std::vector{Token(1, 0.5, {})})) << "nothing says that it is";
}

TEST(ComparePredictionsTest, RefusesWhatCannotBeCompared) {
  const std::vector<v1::TokenLogprobs> one = {Token(1, 0.5, {{1, 0.5}})};
  const std::vector<v1::TokenLogprobs> other = {Token(2, 0.5, {{1, 0.5}})};
  const std::vector<v1::TokenLogprobs> bare = {Token(1, 0.5, {})};
  EXPECT_FALSE(ComparePredictions({}, {}).ok());
  EXPECT_FALSE(ComparePredictions(one, {}).ok());
  EXPECT_FALSE(ComparePredictions(one, other).ok());
  EXPECT_FALSE(ComparePredictions(one, bare).ok());
  EXPECT_TRUE(ComparePredictions(one, one).ok());
}

}  // namespace
}  // namespace tandem::prediction_change_test
