#include "bench/simulator/slo_map.h"

#include <functional>

#include "bench/simulator/slo_map_report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/tree.h"

namespace tandem::simulator::slo_map_test {
namespace {

using ::testing::HasSubstr;

SloMapPlan SmallSloMap() {
  return {
      .machines = {.file = TreePath("models/simulated/qwen3-8b-h200.json"), .overrides = {}},
      .sweep = {.strategies =
                    {{.name = "u", .policy = "least-loaded", .unified = 3},
                     {.name = "auto", .policy = "auto", .prefill = 1, .decode = 1, .unified = 1}},
                .workloads = {"short"},
                .rates = {30},
                .seeds = {1},
                .requests = 60},
      .ttft_ms = {0.5, 60'000},
      .tpot_ms = {0.5, 60'000}};
}

TEST(SloMapTest, ObjectivesNobodyMeetsAndObjectivesEverybodyMeets) {
  int reported = 0;
  const auto maps = MakeSloMaps(SmallSloMap(), [&reported](const SloMap&) { ++reported; });
  ASSERT_TRUE(maps.ok()) << maps.status();
  ASSERT_EQ(maps->size(), 1U);
  EXPECT_EQ(reported, 1);
  const SloMap& map = maps->front();
  ASSERT_EQ(map.cells.size(), 4U);
  for (const SloCell& cell : map.cells) {
    const bool is_met = cell.ttft_ms > 1 && cell.tpot_ms > 1;
    for (const loadgen::Contender& one : cell.contenders) {
      EXPECT_EQ(one.share, is_met ? 1 : 0) << one.name;
    }
    ASSERT_EQ(cell.comparisons.size(), 1U);
    EXPECT_EQ(cell.comparisons[0].standing,
              is_met ? loadgen::Standing::kTies : loadgen::Standing::kNoneHolds);
  }
  const std::string report = SloMapMarkdown(SmallSloMap(), *maps);
  EXPECT_THAT(report, HasSubstr("wins under 0 pairs of objectives, ties under 1, loses under 0"));
  EXPECT_THAT(report, HasSubstr("| 60000 ms | none holds | +0.0% (u) |"));
  EXPECT_THAT(SloMapHtml(SmallSloMap(), *maps), HasSubstr("<svg"));
  EXPECT_EQ(SloMapJson(SmallSloMap(), *maps)["maps"][0]["cells"].size(), 4U);
}

TEST(SloMapTest, BadPlansAreRefusedByTheFlagAtFault) {
  const std::pair<std::string, std::function<void(SloMapPlan&)>> wrong[] = {
      {"--ttft: give", [](SloMapPlan& plan) { plan.ttft_ms = {}; }},
      {"--ttft: 0", [](SloMapPlan& plan) { plan.ttft_ms = {0}; }},
      {"--tpot: nan", [](SloMapPlan& plan) { plan.tpot_ms = {std::stod("nan")}; }},
      {"--tpot: 3 comes after 3",
       [](SloMapPlan& plan) {
         plan.tpot_ms = {3, 3};
       }},
      {"--rates: give", [](SloMapPlan& plan) { plan.sweep.rates = {}; }},
      {"nowhere.json", [](SloMapPlan& plan) { plan.machines.file = "nowhere.json"; }},
  };
  for (const auto& [what, spoil] : wrong) {
    SloMapPlan plan = SmallSloMap();
    spoil(plan);
    const absl::Status status = Validate(plan);
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
  EXPECT_TRUE(Validate(SmallSloMap()).ok()) << Validate(SmallSloMap());
}

}  // namespace
}  // namespace tandem::simulator::slo_map_test
