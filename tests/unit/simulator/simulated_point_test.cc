#include "bench/simulator/simulated_point.h"

#include "base/log.h"
#include "bench/serving/sweep_report.h"
#include "bench/serving/sweep_workload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/tree.h"

namespace tandem::simulator::simulated_point_test {
namespace {

using ::testing::HasSubstr;

const SimulatedMachines kMachines = {.file = TreePath("models/simulated/qwen3-8b-h200.json"),
                                     .overrides = {}};

[[maybe_unused]] const bool kIsQuiet = SetUpLogging("error", "simulation").ok();

loadgen::SweepPlan SmallSweep() {
  return {.strategies = {{.name = "u", .policy = "least-loaded", .unified = 2},
                         {.name = "pd", .policy = "least-loaded", .prefill = 1, .decode = 1}},
          .workloads = {"short"},
          .rates = {20},
          .seeds = {1},
          .requests = 60,
          .objectives = {.ttft = 500, .tpot = 20}};
}

TEST(SimulatedPointTest, RunsTheStrategyOnTheScheduleOfThePoint) {
  const loadgen::SweepPlan plan = SmallSweep();
  for (const loadgen::SweepPoint& point : PointsOf(plan)) {
    const auto schedule = loadgen::MakeSweepSchedule(
        point.workload, {.rate = point.rate, .requests = plan.requests, .seed = point.seed});
    ASSERT_TRUE(schedule.ok());
    const auto result = SimulatePoint(kMachines, plan, point, *schedule);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)["simulated"], true);
    EXPECT_EQ((*result)["schedule_hash"], schedule->HashText());
    EXPECT_EQ((*result)["label"], point.strategy.name);
    EXPECT_EQ((*result)["routes"].size(), 1U);
    EXPECT_TRUE(
        (*result)["routes"].contains(point.strategy.unified > 0 ? "unified" : "disaggregated"));
    EXPECT_EQ(loadgen::NumberIn(*result, "slo_attainment", "share"), 1);
    const auto again = SimulatePoint(kMachines, plan, point, *schedule);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ((*again)["event_digest"], (*result)["event_digest"]);
  }
}

TEST(SimulatedPointTest, TheRouterKnowsTheObjectivesThatRequestsAreJudgedBy) {
  const auto options = OptionsOf(SmallSweep().strategies[0], kMachines, SmallSweep().objectives, 7);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->slo.ttft, ModelTime(500));
  EXPECT_EQ(options->slo.tpot, ModelTime(20));
  EXPECT_EQ(options->seed, 7U);
  const auto without = OptionsOf(SmallSweep().strategies[0], kMachines, {.e2e = 900}, 7);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->slo.ttft, std::nullopt);
  EXPECT_EQ(without->slo.tpot, std::nullopt);
}

TEST(SimulatedPointTest, ARequestBeyondTheContextIsRefused) {
  const loadgen::SweepPlan plan = SmallSweep();
  loadgen::Schedule schedule;
  schedule.requests.push_back({.prompt = {{.seed = 1, .tokens = 50'000}}, .output_tokens = 9});
  const auto result = SimulatePoint(kMachines, plan, PointsOf(plan)[0], schedule);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
}

TEST(SimulatedPointTest, AFileThatIsNotThereIsNamed) {
  const auto fleet = FleetOf(SmallSweep().strategies[0], {.file = "nowhere.json", .overrides = {}});
  EXPECT_FALSE(fleet.ok());
  EXPECT_THAT(std::string(fleet.status().message()), HasSubstr("nowhere.json"));
}

}  // namespace
}  // namespace tandem::simulator::simulated_point_test
