#include "bench/serving/sweep_plan.h"

#include <functional>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen::sweep_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kPolicies = {"auto", "least-loaded"};

SweepPlan Plan() {
  return {.strategies = UsualStrategies(4, kPolicies),
          .workloads = {"short", "mixed"},
          .rates = {1, 2.5},
          .seeds = {1, 2, 3},
          .objectives = {.ttft = 500}};
}

TEST(SweepStrategyTest, IsReadFromText) {
  const auto strategy = ParseStrategy("mine:auto:prefill=1,decode=2,unified=1", kPolicies);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_EQ(strategy->name, "mine");
  EXPECT_EQ(strategy->policy, "auto");
  EXPECT_EQ(strategy->prefill, 1);
  EXPECT_EQ(strategy->decode, 2);
  EXPECT_EQ(strategy->unified, 1);
  EXPECT_EQ(strategy->workers(), 4);
}

TEST(SweepStrategyTest, WhatIsWrongIsNamed) {
  const std::pair<std::string, std::string> wrong[] = {
      {"mine:auto", "NAME:POLICY:ROLE=COUNT"},
      {"a/b:auto:unified=1", "a/b"},
      {"mine:best:unified=1", "the policy best is none of auto, least-loaded"},
      {"mine:auto:gpu=1", "\"gpu=1\""},
      {"mine:auto:unified=-1", "\"unified=-1\""},
      {"mine:auto:unified=65", "up to 64"},
      {"mine:auto:unified=many", "\"unified=many\""},
      {"mine:auto:prefill=4", "give a unified worker"},
  };
  for (const auto& [text, what] : wrong) {
    const absl::Status status = ParseStrategy(text, kPolicies).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--strategy " + text));
  }
}

TEST(SweepStrategyTest, UsualOnesHaveEqualResources) {
  std::vector<std::string> names;
  for (const SweepStrategy& strategy : UsualStrategies(4, kPolicies)) {
    EXPECT_EQ(strategy.workers(), 4) << strategy.name;
    names.push_back(strategy.name);
  }
  EXPECT_THAT(names, ElementsAre("unified-4", "split-1-3", "split-2-2", "split-3-1", "auto",
                                 "least-loaded"));
  EXPECT_EQ(UsualStrategies(2, kPolicies).size(), 2u) << "no room for workers of all roles";
}

TEST(SweepPlanTest, HasAPointForEachCombinationWithAFileOfItsOwn) {
  const SweepPlan plan = Plan();
  ASSERT_TRUE(Validate(plan).ok()) << Validate(plan);
  const std::vector<SweepPoint> points = PointsOf(plan);
  EXPECT_EQ(points.size(), 6u * 2 * 2 * 3);
  EXPECT_EQ(points[0].seed, points[5].seed) << "the strategies of one load follow one another";
  EXPECT_NE(points[0].seed, points[6].seed);
  std::set<std::string> files;
  std::set<std::string> keys;
  for (const SweepPoint& point : points) {
    files.insert(FileNameOf(point));
    keys.insert(KeyOf(plan, point).dump());
  }
  EXPECT_EQ(files.size(), points.size());
  EXPECT_EQ(keys.size(), points.size());
  EXPECT_EQ(FileNameOf(points[0]), "short_1rps_seed1_unified-4.json");
}

TEST(SweepPlanTest, AWorkloadMayHaveRatesOfItsOwn) {
  SweepPlan plan = Plan();
  plan.workloads = {"short", "long"};
  ASSERT_TRUE(ParseRatesOf("long=0.5,3", plan).ok());
  ASSERT_TRUE(Validate(plan).ok()) << Validate(plan);
  std::map<std::string, std::set<double>> rates;
  for (const SweepPoint& point : PointsOf(plan)) rates[point.workload].insert(point.rate);
  EXPECT_EQ(rates["long"], (std::set<double>{0.5, 3}));
  EXPECT_EQ(rates["short"], std::set<double>(plan.rates.begin(), plan.rates.end()));
  plan.workloads = {"long"};
  plan.rates.clear();
  EXPECT_TRUE(Validate(plan).ok()) << "no workload needs --rates: " << Validate(plan);
}

TEST(SweepPlanTest, RatesOfAWorkloadAreRefusedWhereTheyAreNone) {
  for (const std::string text : {"", "long", "long=", "long=1,", "long=1,x", "long=1=2"}) {
    SweepPlan plan = Plan();
    const absl::Status status = ParseRatesOf(text, plan);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--rates-of " + text + ": give"));
  }
  SweepPlan plan = Plan();
  ASSERT_TRUE(ParseRatesOf("long=1", plan).ok());
  EXPECT_THAT(std::string(ParseRatesOf("long=2", plan).message()), HasSubstr("given twice"));
}

TEST(SweepPlanTest, EverythingThatChangesAResultIsInItsKey) {
  const SweepPlan plan = Plan();
  const SweepPoint point = PointsOf(plan)[0];
  const std::function<void(SweepPlan&)> changes[] = {
      [](SweepPlan& other) { other.requests = 7; },
      [](SweepPlan& other) { other.context_tokens = 64; },
      [](SweepPlan& other) { other.objectives.tpot = 1; },
      [](SweepPlan& other) { other.arguments = {"--threads=2"}; },
      [](SweepPlan& other) { other.build = "9"; },
  };
  for (const auto& change : changes) {
    SweepPlan other = plan;
    change(other);
    EXPECT_NE(KeyOf(other, point), KeyOf(plan, point));
  }
}

TEST(SweepPlanTest, PointsOfHighRatesLastAsLongAsIsAsked) {
  SweepPlan plan = Plan();
  EXPECT_EQ(RequestsOf(plan, 120), 1000);
  plan.min_seconds = 40;
  EXPECT_EQ(RequestsOf(plan, 10), 1000);
  EXPECT_EQ(RequestsOf(plan, 120), 4800);
  EXPECT_NE(KeyOf(plan, {.rate = 120}), KeyOf(Plan(), {.rate = 120}));
  EXPECT_EQ(KeyOf(plan, {.rate = 10}), KeyOf(Plan(), {.rate = 10})) << "need not be run again";
}

TEST(SweepPlanTest, BadOnesAreRefusedByTheFlagAtFault) {
  const std::pair<std::string, std::function<void(SweepPlan&)>> wrong[] = {
      {"--num-prompts=0", [](SweepPlan& plan) { plan.requests = 0; }},
      {"--min-seconds=-1", [](SweepPlan& plan) { plan.min_seconds = -1; }},
      {"--min-seconds=1000000000: give a time in which 2.5 requests/s",
       [](SweepPlan& plan) { plan.min_seconds = 1e9; }},
      {"--context=63", [](SweepPlan& plan) { plan.context_tokens = 63; }},
      {"only equal resources", [](SweepPlan& plan) { ++plan.strategies[1].unified; }},
      {"the name is given twice", [](SweepPlan& plan) { plan.strategies[1].name = "unified-4"; }},
      {"--workloads=short,short",
       [](SweepPlan& plan) {
         plan.workloads = {"short", "short"};
       }},
      {"workload tall", [](SweepPlan& plan) { plan.workloads = {"tall"}; }},
      {"--rates: -1",
       [](SweepPlan& plan) {
         plan.rates = {2, -1};
       }},
      {"--rates: nan", [](SweepPlan& plan) { plan.rates = {std::stod("nan")}; }},
      {"--rates: inf", [](SweepPlan& plan) { plan.rates = {std::stod("inf")}; }},
      {"--rates: give", [](SweepPlan& plan) { plan.rates = {}; }},
      {"--rates-of: -1",
       [](SweepPlan& plan) {
         plan.rates_of = {{"short", {-1}}};
       }},
      {"--rates-of long: the workload is not among",
       [](SweepPlan& plan) {
         plan.rates_of = {{"long", {1}}};
       }},
      {"--seeds: give", [](SweepPlan& plan) { plan.seeds = {}; }},
      {"--goodput", [](SweepPlan& plan) { plan.objectives = {}; }},
  };
  for (const auto& [what, spoil] : wrong) {
    SweepPlan plan = Plan();
    spoil(plan);
    const absl::Status status = Validate(plan);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
}

}  // namespace
}  // namespace tandem::loadgen::sweep_plan_test
