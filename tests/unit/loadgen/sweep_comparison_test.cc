#include "bench/serving/sweep_comparison.h"

#include "bench/serving/heat_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::sweep_comparison_test {
namespace {

using ::testing::HasSubstr;

Contender Fixed(const std::string& name, std::vector<double> good, double share = 0.9) {
  return {.name = name, .good = std::move(good), .share = share};
}
Contender Adapting(std::vector<double> good, double share = 0.9) {
  return {.name = "auto", .adapts = true, .good = std::move(good), .share = share};
}

TEST(SweepComparisonTest, MarginsAreTakenSeedBySeed) {
  // Seeds differ by far more than the strategies do, which each gain 5 on the mean of 100.
  const auto margin = MarginPercent({55, 155}, {50, 150});
  ASSERT_TRUE(margin.has_value());
  EXPECT_DOUBLE_EQ(margin->mean, 5);
  EXPECT_NEAR(margin->half_width, 0, 1e-9);
  EXPECT_EQ(MarginText(MarginPercent({50, 60}, {50, 50})), "+10.0 ± 127.1%");
  EXPECT_EQ(MarginText(MarginPercent({60}, {50})), "+20.0%");
}

TEST(SweepComparisonTest, NothingIsNoMeasureOfSomething) {
  EXPECT_EQ(MarginPercent({1}, {0}), std::nullopt);
  EXPECT_EQ(MarginText(MarginPercent({1}, {0})), "no other holds");
  EXPECT_EQ(MarginPercent({0}, {0})->mean, 0);
}

TEST(SweepComparisonTest, TheBestOfTheOthersIsTheMeasure) {
  const std::vector<Contender> contenders = {Fixed("a", {100, 100}), Fixed("b", {110, 120}),
                                             Adapting({104, 104}), Fixed("c", {0, 0})};
  const std::vector<Comparison> all = Compare(contenders);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "auto");
  EXPECT_EQ(all[0].best_other, "b");
  EXPECT_NEAR(all[0].margin->mean, -9.565, 1e-3);
  EXPECT_EQ(all[0].standing, Standing::kLoses);
  ASSERT_EQ(all[0].margins.size(), 3U);
  EXPECT_DOUBLE_EQ(all[0].margins[0].percent->mean, 4);
  EXPECT_EQ(all[0].margins[2].percent, std::nullopt);
  EXPECT_EQ(WinnerOf(contenders), "b");
}

TEST(SweepComparisonTest, ThreePercentDecideWhoWins) {
  const auto standing = [](double good, double share = 0.5) {
    return Compare({Fixed("a", {100}, share), Adapting({good}, share)})[0].standing;
  };
  EXPECT_EQ(standing(104), Standing::kWins);
  EXPECT_EQ(standing(103), Standing::kTies);
  EXPECT_EQ(standing(97), Standing::kTies);
  EXPECT_EQ(standing(96), Standing::kLoses);
  EXPECT_EQ(standing(50, 0.09), Standing::kNoneHolds);
  EXPECT_EQ(Compare({Fixed("a", {0}, 0), Adapting({9}, 0.5)})[0].standing, Standing::kWins);
}

TEST(SweepComparisonTest, WithoutBothKindsThereIsNothingToCompare) {
  EXPECT_TRUE(Compare({Fixed("a", {1}), Fixed("b", {2})}).empty());
  EXPECT_TRUE(Compare({Adapting({1})}).empty());
}

TEST(HeatMapTest, CellsHaveTheColourOfTheirValue) {
  const std::string svg = RenderHeatMap({.title = "a < b",
                                         .x_label = "x",
                                         .y_label = "y",
                                         .columns = {"1", "2"},
                                         .rows = {"r", "s"},
                                         .cells = {{"wins", 1, "by far"},
                                                   {"ties", 0, ""},
                                                   {"loses", -7, ""},
                                                   {"none", std::stod("nan"), ""}},
                                         .legend = "blue is good"});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  for (const char* color : {"#6699cc", "#ffffff", "#ee6677", "#dddddd"}) {
    EXPECT_THAT(svg, HasSubstr(color));
  }
  EXPECT_THAT(svg, HasSubstr("<title>by far</title>"));
  EXPECT_THAT(svg, HasSubstr("blue is good"));
}

}  // namespace
}  // namespace tandem::loadgen::sweep_comparison_test
