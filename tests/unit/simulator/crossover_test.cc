#include "bench/simulator/crossover.h"

#include <cmath>
#include <functional>

#include "bench/simulator/crossover_report.h"
#include "bench/simulator/route_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/simulated_fleet.h"
#include "tests/support/tree.h"

namespace tandem::simulator::crossover_test {
namespace {

using ::testing::HasSubstr;

CrossoverPlan SmallCrossover() {
  return {.machines = {.file = TreePath("models/simulated/qwen3-8b-h200.json"), .overrides = {}},
          .links_gb_per_s = {0.02, 50},
          .prompts = {4096},
          .loads = {0.5},
          .output_tokens = 16,
          .requests = 40,
          .samples = 4};
}

std::vector<WorkerConfig> OneOfEach() {
  std::vector<WorkerConfig> fleet = Pairs(1, 1);
  AddWorkers(v1::WORKER_ROLE_UNIFIED, 1, fleet);
  return fleet;
}

TEST(RouteReplayTest, ALoneRequestCostsItsOwnTimeOnEachRoute) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 1, .input = 1000, .output = 5});
  const auto replay = RouteReplay::New({.fleet = OneOfEach()}, schedule, {v1::ROUTE_DISAGGREGATED});
  ASSERT_TRUE(replay.ok()) << replay.status();
  const SimulationResult alone = RunSimulation({.fleet = Pairs(1, 1)}, schedule);
  const loadgen::RequestLatency latency = LatencyOf(alone.run.records[0]);
  EXPECT_DOUBLE_EQ(replay->latencies_ms()[0], latency.e2e + 2 * latency.ttft.value())
      << "the time before the first token weighs three times";
}

TEST(RouteReplayTest, ARequestCostsWhatOthersLoseByIt) {
  // Two at the same time on one worker: each of them makes the other one later.
  loadgen::Schedule schedule = ScheduleOf({.requests = 2, .input = 1000, .output = 5});
  for (loadgen::ScheduledRequest& request : schedule.requests) request.at = {};
  const auto replay =
      RouteReplay::New({.fleet = OneOfEach()}, schedule, {v1::ROUTE_UNIFIED, v1::ROUTE_UNIFIED});
  ASSERT_TRUE(replay.ok()) << replay.status();
  const auto costs = replay->CostsOf(1);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_DOUBLE_EQ(costs->unified.own_ms, replay->latencies_ms()[1]);
  EXPECT_GT(costs->unified.others_ms, 0) << "the first decodes beside its prompt";
  EXPECT_LT(costs->disaggregated.total_ms(), costs->unified.total_ms())
      << "there it disturbs nobody";
}

TEST(RouteReplayTest, ARouteOnWhichNotAllCompleteCostsInfinity) {
  auto slow = std::make_shared<WorkerModel>(*TestModel());
  slow->link->bytes_per_second = 1e6;  // the KV of a prompt takes minutes
  SimulationOptions options{.fleet = OneOfEach()};
  for (WorkerConfig& worker : options.fleet) worker.model = slow;
  options.run.drain_timeout = std::chrono::seconds(10);
  const loadgen::Schedule schedule = ScheduleOf({.requests = 2});
  const auto replay = RouteReplay::New(options, schedule, {v1::ROUTE_UNIFIED, v1::ROUTE_UNIFIED});
  ASSERT_TRUE(replay.ok()) << replay.status();
  const auto costs = replay->CostsOf(0);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->disaggregated.total_ms(), INFINITY);
  EXPECT_LT(costs->unified.total_ms(), 1000);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      RouteReplay::New(options, schedule, {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}).status()));
}

TEST(RouteReplayTest, TheRoutesOfARunGiveTheSameTimesAgain) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 60, .rate = 12});
  SimulationOptions options{.fleet = OneOfEach(), .policy = "auto"};
  const SimulationResult run = RunSimulation(options, schedule);
  std::vector<v1::Route> routes;
  for (const loadgen::RequestRecord& record : run.run.records) {
    routes.push_back(record.end.route == "unified" ? v1::ROUTE_UNIFIED : v1::ROUTE_DISAGGREGATED);
  }
  EXPECT_GT(RequestsOnRoute(run, "unified"), 0);
  EXPECT_GT(RequestsOnRoute(run, "disaggregated"), 0);
  const auto replay = RouteReplay::New(options, schedule, routes);
  ASSERT_TRUE(replay.ok()) << replay.status();
  for (size_t i = 0; i < routes.size(); ++i) {
    EXPECT_DOUBLE_EQ(replay->latencies_ms()[i], WeightedLatencyMs(run.run.records[i])) << i;
  }
}

TEST(SimulationTest, RoutesOfAnotherNumberOfRequestsAreRefused) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 2});
  loadgen::RunCounts counts;
  const auto result =
      Simulate({.fleet = OneOfEach(), .routes = {v1::ROUTE_UNIFIED}}, schedule, counts);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
}

TEST(SimulationTest, SaysOnRequestWhyRequestsWentWhereTheyWent) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 5});
  const SimulationResult result =
      RunSimulation({.fleet = OneOfEach(), .policy = "auto", .explain = true}, schedule);
  ASSERT_EQ(result.explanations.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result.explanations[i].request_id(), result.run.records[i].id);
    EXPECT_EQ(result.explanations[i].decisions(0).candidates_size(), 2);
  }
  EXPECT_TRUE(RunSimulation({.fleet = OneOfEach()}, schedule).explanations.empty());
}

TEST(CrossoverTest, ASlowLinkKeepsRequestsTogetherAndAFastOneDoesNot) {
  std::vector<CrossoverCell> reported;
  const auto cells = RunCrossover(
      SmallCrossover(), [&reported](const CrossoverCell& cell) { reported.push_back(cell); });
  ASSERT_TRUE(cells.ok()) << cells.status();
  ASSERT_EQ(cells->size(), 2U);
  EXPECT_EQ(reported.size(), 2U);
  const CrossoverCell& slow = cells->front();
  const CrossoverCell& fast = cells->back();
  EXPECT_EQ(slow.chosen, 0);
  EXPECT_EQ(slow.predicted, 0);
  EXPECT_EQ(slow.samples.size(), 4U);
  EXPECT_EQ(slow.decisive.samples, 4) << "the KV takes half a minute";
  EXPECT_EQ(slow.decisive.replayed, 0);
  EXPECT_EQ(slow.decisive.foreseen, 1);
  EXPECT_LT(slow.median_advantage_ms, 0);
  EXPECT_EQ(RegretPercent({slow}), 0);
  EXPECT_GT(fast.chosen, 0.1);
  EXPECT_GT(fast.predicted, 0.1);
  EXPECT_GE(fast.regret_ms, 0);
  EXPECT_GT(fast.oracle_ms, 0);
  for (const CrossoverCell& cell : *cells) EXPECT_LT(cell.replay_difference, 0.05);

  const nlohmann::ordered_json json = CrossoverJson(SmallCrossover(), *cells);
  EXPECT_EQ(json["simulated"], true);
  EXPECT_EQ(json["cells"].size(), 2U);
  EXPECT_EQ(json["crossings_gb_per_s"].size(), 1U);
  EXPECT_THAT(CrossoverMarkdown(SmallCrossover(), *cells), HasSubstr("| 4096 | 0.0 |"));
  EXPECT_THAT(CrossoverHtml(SmallCrossover(), *cells), HasSubstr("<svg"));
}

CrossoverSample Sample(double unified_ms, double disaggregated_ms, double predicted_unified_ms) {
  return {.taken = v1::ROUTE_DISAGGREGATED,
          .replayed = {.unified = {.own_ms = unified_ms},
                       .disaggregated = {.own_ms = disaggregated_ms}},
          .predicted_unified_ms = predicted_unified_ms,
          .predicted_disaggregated_ms = 100};
}

TEST(CrossoverTest, ARouteMattersWhereItsCostsDifferByMoreThanATwentieth) {
  EXPECT_FALSE(Sample(100, 104, 0).is_decisive());
  EXPECT_TRUE(Sample(100, 106, 0).is_decisive());
  EXPECT_TRUE(Sample(100, 94, 0).is_decisive());
  EXPECT_TRUE(Sample(100, INFINITY, 0).is_decisive());
}

TEST(CrossoverTest, SharesAreThoseOfTheSamplesForWhichTheRouteMatters) {
  const CrossoverShares shares = SharesOf(
      {Sample(100, 50, 200), Sample(100, 101, 200), Sample(100, 300, 200), Sample(100, 300, 50)});
  EXPECT_EQ(shares.samples, 3);
  EXPECT_DOUBLE_EQ(shares.predicted, 2. / 3);
  EXPECT_DOUBLE_EQ(shares.chosen, 1);
  EXPECT_DOUBLE_EQ(shares.replayed, 1. / 3);
  EXPECT_DOUBLE_EQ(shares.foreseen, 2. / 3);
}

TEST(CrossoverTest, ACrossingLiesBetweenTwoLinks) {
  const auto crossing = [](const std::vector<double>& shares) {
    return CrossingOf({0.1, 1, 10}, shares);
  };
  EXPECT_EQ(crossing({0, 0.1, 0.4}).kind, Crossing::Kind::kAbove);
  EXPECT_EQ(crossing({0.5, 0.6, 1}).kind, Crossing::Kind::kBelow);
  EXPECT_EQ(crossing({0, 0, 1}).kind, Crossing::Kind::kAt);
  EXPECT_NEAR(crossing({0, 0, 1}).link_gb_per_s, std::sqrt(10), 1e-9);
  EXPECT_DOUBLE_EQ(crossing({0, 0.5, 1}).link_gb_per_s, 1);
  EXPECT_NEAR(crossing({0, 0.9, 0.9}).link_gb_per_s, 0.1 * std::pow(10, 5. / 9), 1e-9);
}

TEST(CrossoverTest, BadPlansAreRefusedByTheFlagAtFault) {
  const std::pair<std::string, std::function<void(CrossoverPlan&)>> wrong[] = {
      {"--links: give", [](CrossoverPlan& plan) { plan.links_gb_per_s = {}; }},
      {"--links: -1", [](CrossoverPlan& plan) { plan.links_gb_per_s = {-1}; }},
      {"--links: 2 comes after 3",
       [](CrossoverPlan& plan) {
         plan.links_gb_per_s = {3, 2};
       }},
      {"--prompts: 0", [](CrossoverPlan& plan) { plan.prompts = {0}; }},
      {"--loads: nan", [](CrossoverPlan& plan) { plan.loads = {std::stod("nan")}; }},
      {"--output-len=0", [](CrossoverPlan& plan) { plan.output_tokens = 0; }},
      {"--num-prompts=5000", [](CrossoverPlan& plan) { plan.requests = 5000; }},
      {"--samples=-1", [](CrossoverPlan& plan) { plan.samples = -1; }},
      {"--samples=17", [](CrossoverPlan& plan) { plan.samples = 17; }},
      {"nowhere.json", [](CrossoverPlan& plan) { plan.machines.file = "nowhere.json"; }},
  };
  for (const auto& [what, spoil] : wrong) {
    CrossoverPlan plan = SmallCrossover();
    spoil(plan);
    const absl::Status status = Validate(plan);
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
  EXPECT_TRUE(Validate(SmallCrossover()).ok()) << Validate(SmallCrossover());
}

}  // namespace
}  // namespace tandem::simulator::crossover_test
