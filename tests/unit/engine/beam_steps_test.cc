// Beam search by hand at its edges: ties, stop tokens among the best, early stopping, few candidates.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/beam_search.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/engine/beam_token_ids.h"

namespace tandem::beam_steps_test {
namespace {

using EarlyStopping = BeamParams::EarlyStopping;
using beam_token_ids::Ids;
using beam_token_ids::TokenIds;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;

using Top = std::vector<TokenLogprob>;

std::vector<BeamSearch::Continuation> Step(BeamSearch& search, const std::vector<Top>& tops) {
  const std::vector<std::span<const TokenLogprob>> spans(tops.begin(), tops.end());
  return search.Step(spans);
}

auto Continues(int32_t parent, int32_t token_id) {
  return AllOf(Field(&BeamSearch::Continuation::parent, parent),
               Field(&BeamSearch::Continuation::token_id, token_id));
}

TEST(BeamSearchTest, CandidatesLeaveTheWidthWhateverStops) {
  EXPECT_EQ(BeamCandidates(4, 0), 8);
  EXPECT_EQ(BeamCandidates(4, 1), 8);
  EXPECT_EQ(BeamCandidates(4, 3), 16);
  BeamSearch search({.params = {.width = 3}, .max_tokens = 5, .stop_token_ids = {0, 1}});
  EXPECT_EQ(search.candidates_per_beam(), 9);
  EXPECT_EQ(search.num_live(), 1);
}

TEST(BeamSearchTest, OneTokenIsTheMostProbableOnes) {
  BeamSearch search({.params = {.width = 2}, .max_tokens = 1, .stop_token_ids = {7}});
  EXPECT_TRUE(Step(search, {{{5, -0.5f}, {7, -1.5f}, {1, -2}, {2, -3}}}).empty());
  ASSERT_TRUE(search.done());
  const auto best = search.Best(2);
  EXPECT_EQ(Ids(best[0]), TokenIds{5});
  EXPECT_EQ(best[0].reason, FinishReason::kLength);
  EXPECT_EQ(Ids(best[1]), TokenIds{7});
  EXPECT_EQ(best[1].reason, FinishReason::kStop);
  EXPECT_EQ(search.Best(1).size(), 1u);
}

TEST(BeamSearchTest, EqualSumsGoToTheEarlierBeamThenToTheLowerId) {
  BeamSearch search({.params = {.width = 3}, .max_tokens = 4});
  EXPECT_THAT(Step(search, {{{2, -1}, {8, -1}, {9, -1}, {1, -2}, {3, -2}, {4, -2}}}),
              ElementsAre(Continues(0, 2), Continues(0, 8), Continues(0, 9)));
  const Top flat = {{0, -1}, {6, -1}, {7, -3}, {8, -3}, {9, -3}, {10, -3}};
  EXPECT_THAT(Step(search, {flat, flat, flat}),
              ElementsAre(Continues(0, 0), Continues(0, 6), Continues(1, 0)));
}

TEST(BeamSearchTest, AnEndBehindTheWidthIsNoHypothesisAndHoldsNoBeam) {
  BeamSearch search({.params = {.width = 2}, .max_tokens = 2, .stop_token_ids = {7}});
  EXPECT_THAT(Step(search, {{{1, -1}, {2, -2}, {7, -3}, {3, -4}}}),
              ElementsAre(Continues(0, 1), Continues(0, 2)));
  const Top next = {{1, -5}, {2, -6}, {3, -7}, {4, -8}};
  Step(search, {next, next});
  ASSERT_TRUE(search.done());
  for (const BeamHypothesis& hypothesis : search.Best(2)) EXPECT_EQ(hypothesis.tokens.size(), 2u);
}

TEST(BeamSearchTest, BothEndsAmongTheBestLeaveTheBeamsToTheNext) {
  BeamSearch search({.params = {.width = 2, .early_stopping = EarlyStopping::kNever},
                     .max_tokens = 3,
                     .stop_token_ids = {7, 8}});
  const Top first = {{7, -1}, {8, -1.5f}, {1, -1.6f}, {2, -1.7f}, {3, -3}, {4, -4}};
  EXPECT_THAT(Step(search, {first}), ElementsAre(Continues(0, 1), Continues(0, 2)));
  EXPECT_FALSE(search.done());
}

TEST(BeamSearchTest, DoneWhenNothingGoesOn) {
  BeamSearch search({.params = {.width = 2}, .max_tokens = 9, .stop_token_ids = {0, 1, 2}});
  EXPECT_TRUE(Step(search, {{{2, -1}, {0, -2}, {1, -3}}}).empty());
  EXPECT_TRUE(search.done());
  EXPECT_EQ(search.Best(2).size(), 2u);
}

TEST(BeamSearchTest, FewerBeamsWhereTheVocabularyHasNoMore) {
  BeamSearch search({.params = {.width = 4}, .max_tokens = 3, .stop_token_ids = {0}});
  EXPECT_EQ(Step(search, {{{1, -1}, {2, -1.5f}, {0, -2}}}).size(), 2u);
  EXPECT_EQ(search.num_live(), 2);
  const Top next = {{1, -1}, {2, -1.5f}, {0, -2}};
  EXPECT_EQ(Step(search, {next, next}).size(), 4u);
}

// Hypotheses of -1 and -1.5 are kept at length 1; the best live beam has -1.6 then and hardly less
// with each token, of which there may be 4.
int StepsWhenBothEndAtOnce(EarlyStopping early, float penalty) {
  BeamSearch search({.params = {.width = 2, .length_penalty = penalty, .early_stopping = early},
                     .max_tokens = 4,
                     .stop_token_ids = {7, 8}});
  const Top first = {{7, -1}, {8, -1.5f}, {1, -1.6f}, {2, -3}, {3, -5}, {4, -5}};
  const Top next = {{1, -0.01f}, {2, -3}, {3, -4}, {4, -5}, {7, -6}, {8, -6}};
  int steps = 1;
  for (Step(search, {first}); !search.done(); ++steps) Step(search, {next, next});
  return steps;
}

// Hypotheses of -0.5 at length 1 and of `second` at length 2 are kept; the best live beam has -1,
// and -0.125 more with each token, of which there may be 8.
int StepsWhenTheSecondEndsLater(EarlyStopping early, float penalty, float second) {
  BeamSearch search({.params = {.width = 2, .length_penalty = penalty, .early_stopping = early},
                     .max_tokens = 8,
                     .stop_token_ids = {7}});
  Step(search, {{{7, -0.5f}, {1, -1}, {2, -9}, {3, -9}}});
  const Top bad = {{2, -9}, {3, -9}, {4, -9}, {5, -9}};
  const Top good = {{1, -0.125f}, {7, second + 1}, {2, -9}, {3, -9}};
  const Top next = {{1, -0.125f}, {2, -9}, {3, -9}, {7, -9}};
  int steps = 2;
  for (Step(search, {good, bad}); !search.done(); ++steps) Step(search, {next, bad});
  return steps;
}

TEST(BeamSearchTest, StopsEarlyAsAsked) {
  EXPECT_EQ(StepsWhenBothEndAtOnce(EarlyStopping::kFirst, 1), 1);
  EXPECT_EQ(StepsWhenBothEndAtOnce(EarlyStopping::kHeuristic, 1), 1);
  EXPECT_EQ(StepsWhenBothEndAtOnce(EarlyStopping::kNever, 1), 4);
  EXPECT_EQ(StepsWhenBothEndAtOnce(EarlyStopping::kNever, 0), 1);
  EXPECT_EQ(StepsWhenBothEndAtOnce(EarlyStopping::kNever, -1), 1);

  EXPECT_EQ(StepsWhenTheSecondEndsLater(EarlyStopping::kFirst, 0, -1.25f), 2);
  for (const EarlyStopping early : {EarlyStopping::kHeuristic, EarlyStopping::kNever}) {
    // -1.375 is worse than -1.3, and no better than itself.
    EXPECT_EQ(StepsWhenTheSecondEndsLater(early, 0, -1.3f), 4);
    EXPECT_EQ(StepsWhenTheSecondEndsLater(early, 0, -1.375f), 4);
    // -1.125 * 2 is better than -1.3 * 2, and -1.25 * 3 is worse.
    EXPECT_EQ(StepsWhenTheSecondEndsLater(early, -1, -1.3f), 3);
  }
}

TEST(BeamSearchTest, OfEqualHypothesesTheOlderIsBetter) {
  BeamSearch search(
      {.params = {.width = 2, .length_penalty = 0}, .max_tokens = 2, .stop_token_ids = {7}});
  Step(search, {{{1, -1}, {7, -2}, {2, -5}, {3, -6}}});
  const Top next = {{7, -1}, {1, -1.5f}, {2, -7}, {3, -7}};
  Step(search, {next, next});
  const auto best = search.Best(2);
  EXPECT_EQ(Ids(best[0]), TokenIds{7});
  EXPECT_EQ(Ids(best[1]), (TokenIds{1, 7}));
}

TEST(BeamSearchTest, TheHeuristicLooksAtThePresentLength) {
  BeamSearch search({.params = {.width = 2}, .max_tokens = 9, .stop_token_ids = {7}});
  // One hypothesis with -1, then one with -1.6 / 2; the live beam's -1.5 / 2 might beat it.
  Step(search, {{{7, -1}, {1, -1.4f}, {2, -9}, {3, -9}}});
  const Top good = {{2, -0.1f}, {7, -0.2f}, {3, -5}, {4, -5}};
  const Top bad = {{2, -9}, {3, -9}, {4, -9}, {5, -9}};
  Step(search, {good, bad});
  EXPECT_FALSE(search.done());
  // Its best continuation has -4.5 / 3, and the worst hypothesis -1.
  const Top worse = {{2, -3}, {3, -3}, {4, -3}, {7, -9}};
  Step(search, {worse, bad});
  EXPECT_TRUE(search.done());
}

TEST(BeamSearchTest, ScoresStayFiniteWhateverThePenalty) {
  constexpr int32_t kLong = 8000;  // to the power of 10 beyond float
  for (const float penalty : {kMaxLengthPenalty, -kMaxLengthPenalty}) {
    BeamSearch search(
        {.params = {.width = 2, .length_penalty = penalty, .early_stopping = EarlyStopping::kNever},
         .max_tokens = kLong});
    const Top next = {{1, 0}, {2, -50}, {3, -60}, {4, -70}};
    Step(search, {next});
    while (!search.done()) Step(search, {next, next});
    const auto best = search.Best(2);
    ASSERT_EQ(best.size(), 2u);
    for (const BeamHypothesis& hypothesis : best) {
      EXPECT_TRUE(std::isfinite(hypothesis.score)) << hypothesis.score;
      EXPECT_EQ(hypothesis.tokens.size(), static_cast<size_t>(kLong));
    }
    EXPECT_EQ(best[0].cumulative_logprob, 0);
    EXPECT_EQ(best[1].cumulative_logprob, -50);
    EXPECT_GT(best[0].score, best[1].score);
  }
}

}  // namespace
}  // namespace tandem::beam_steps_test
