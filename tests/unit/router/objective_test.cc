// What a predicted placement costs: its own time, its SLO, and the delay of others.

#include "router/policy/objective.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tandem::objective_test {
namespace {

TEST(ObjectiveTest, OnlyWhatTwoPlacementsDifferInCanBeWrongOfTheirDifference) {
  PlacementPrediction a;
  a.stages.queue = ModelTime(400);
  a.stages.decode = ModelTime(5000);
  PlacementPrediction b;
  b.stages.transfer = ModelTime(300);
  b.stages.decode = ModelTime(5000);
  EXPECT_DOUBLE_EQ(DifferenceErrorMs(a, b, 0.1), 0.1 * std::hypot(3 * 400, 300))
      << "the wait for the first token weighs three times as much";
  EXPECT_DOUBLE_EQ(DifferenceErrorMs(a, a, 0.1), 0);
}

TEST(ObjectiveTest, TheRiskToMissAnSloCountsMoreThanTimeAndGrowsWithTheDelay) {
  PlacementPrediction p;
  p.e2e = ModelTime(1000);
  const auto slo_ms = [&p](double ttft, double tpot) {
    p.ttft = ModelTime(ttft);
    p.tpot = ModelTime(tpot);
    return CostOf(p, {.ttft = ModelTime(100), .tpot = ModelTime(20)}, 50, 0.1).slo_ms;
  };
  EXPECT_NEAR(slo_ms(50, 10), 0, 1e-6);
  EXPECT_NEAR(slo_ms(100, 10), 30000, 1) << "it may be met or missed";
  EXPECT_GT(slo_ms(300, 10), 60000);
  EXPECT_GT(slo_ms(400, 10), slo_ms(300, 10));
  EXPECT_GT(slo_ms(300, 40), slo_ms(300, 10) + 60000) << "both are missed";
  EXPECT_EQ(CostOf(p, {}, 50, 0.1).slo_ms, 0);
}

TEST(ObjectiveTest, OthersCountThatAreNearTheirSloAndNotThoseThatMissItAnyway) {
  PlacementPrediction p;
  p.externality = ModelTime(1000);
  p.others_output_tokens = 100;  // so that their TPOTs rise by 10 ms, all together
  p.later_prompts = ModelTime(10);
  const auto others_slo_ms = [&p](double ttft, double tpot) {
    p.ttft = ModelTime(ttft);
    p.tpot = ModelTime(tpot);
    return CostOf(p, {.ttft = ModelTime(100), .tpot = ModelTime(20)}, 50, 0.1).others_slo_ms;
  };
  EXPECT_NEAR(others_slo_ms(30, 10), 0, 1e-3) << "they have time enough";
  // A normal distribution with a deviation of 2 ms has 0.2 of its mass in the middle millisecond.
  EXPECT_NEAR(others_slo_ms(30, 20), 60000 * 0.2 * 10, 1000);
  EXPECT_NEAR(others_slo_ms(30, 60), 0, 1) << "they miss it anyway";
  EXPECT_NEAR(others_slo_ms(100, 10), 60000 * 0.04 * 10, 500);
  EXPECT_NEAR(others_slo_ms(900, 10), 0, 1);
  EXPECT_EQ(CostOf(p, {}, 50, 0.1).others_slo_ms, 0);
}

// A prompt that takes the whole of the time allowed misses it at every worker. Where it delays
// others, these may have short prompts, and so it is better put where nobody waits.
TEST(ObjectiveTest, APromptThatIsTooLongAnywayMindsTheShortOnesBehindIt) {
  PlacementPrediction p;
  p.later_prompts = ModelTime(10);
  const auto others_slo_ms = [&p](double queue, double prefill) {
    p.stages.queue = ModelTime(queue);
    p.stages.prefill = ModelTime(prefill);
    p.ttft = ModelTime(queue + prefill);
    return CostOf(p, {.ttft = ModelTime(100)}, 50, 0.1).others_slo_ms;
  };
  // A normal distribution with a deviation of 65 ms has 0.0034 of its mass in the millisecond that
  // is 70 ms from its middle.
  EXPECT_NEAR(others_slo_ms(40, 130), 60000 * 0.0034 * 10, 100);
  EXPECT_NEAR(others_slo_ms(900, 130), 0, 1) << "behind such a queue the short ones miss it, too";
}

TEST(ObjectiveTest, TheWaitOfRequestsThatComeLaterCounts) {
  PlacementPrediction p;
  p.e2e = ModelTime(1000);
  p.ttft = ModelTime(100);
  EXPECT_DOUBLE_EQ(CostOf(p, {}, 50, 0.1).total_ms(), 1000 + 2 * 100);
  p.later_prompts = ModelTime(50);
  EXPECT_DOUBLE_EQ(CostOf(p, {}, 50, 0.1).total_ms(), 1000 + 2 * 100 + 3 * 50);
}

TEST(ObjectiveTest, ALongBacklogCountsWhereNoSloIsKept) {
  PlacementPrediction p;
  p.e2e = ModelTime(1000);
  p.ttft = ModelTime(100);
  p.later_prompts = ModelTime(50);
  p.backlog_prompts = ModelTime(70);
  p.backlog_transfers = ModelTime(20);
  EXPECT_DOUBLE_EQ(CostOf(p, {}, 50, 0.1).externality_ms, 3 * 70 + 20);
  EXPECT_DOUBLE_EQ(CostOf(p, {.ttft = ModelTime(1000)}, 50, 0.1).externality_ms, 3 * 50);
}

}  // namespace
}  // namespace tandem::objective_test
