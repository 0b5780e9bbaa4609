#include "bench/serving/sweep.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "bench/serving/sweep_comparison.h"
#include "bench/serving/sweep_report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scripted_backend.h"

namespace tandem::loadgen::sweep_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

class SweepTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "sweep_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static SweepPlan Plan() {
    return {.strategies = UsualStrategies(2, {}),
            .workloads = {"short", "agentic"},
            .rates = {4},
            .seeds = {1, 2, 3},
            .requests = 20,
            .objectives = {.ttft = 500},
            .build = "1"};
  }

  // Each point takes a number of its own as its goodput.
  absl::Status Run(const SweepPlan& plan) {
    return RunSweep(plan, folder_, SweepMode::kRun,
                    [this](const SweepPoint& point, const Schedule& schedule) {
                      return Measure(point, schedule);
                    });
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
  int measured_ = 0;
  int fail_at_ = -1;
  bool simulated_ = false;
  std::map<std::string, std::set<std::string>> hashes_;  // by load

 private:
  absl::StatusOr<Json> Measure(const SweepPoint& point, const Schedule& schedule) {
    if (measured_ == fail_at_) return Unavailable("the machine is on fire");
    ++measured_;
    hashes_[point.workload + std::to_string(point.seed)].insert(schedule.HashText());
    const double goodput = point.strategy.unified > 0 ? 3 : 2;
    const double of_seed = goodput + 0.1 * static_cast<double>(point.seed);
    return Json{{"request_goodput", of_seed},
                {"slo_attainment", {{"share", of_seed / 4}}},
                {"simulated", simulated_}};
  }
};

TEST_F(SweepTest, RunsEveryPointOnceWithOneScheduleForAllStrategies) {
  const absl::Status status = Run(Plan());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(measured_, 2 * 2 * 3);
  EXPECT_EQ(hashes_.size(), 6u);
  for (const auto& [load, hashes] : hashes_) EXPECT_EQ(hashes.size(), 1u) << load;
}

TEST_F(SweepTest, GoesOnWhereItStopped) {
  fail_at_ = 5;
  EXPECT_TRUE(absl::IsUnavailable(Run(Plan())));
  EXPECT_EQ(measured_, 5);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/report.md"));
  fail_at_ = -1;
  ASSERT_TRUE(Run(Plan()).ok());
  EXPECT_EQ(measured_, 12) << "five were there";
  ASSERT_TRUE(Run(Plan()).ok());
  EXPECT_EQ(measured_, 12);
  EXPECT_NE(Read("report.md"), "");
}

TEST_F(SweepTest, MorePointsJoinThoseThatAreThere) {
  ASSERT_TRUE(Run(Plan()).ok());
  SweepPlan plan = Plan();
  plan.rates.push_back(8);
  ASSERT_TRUE(Run(plan).ok());
  EXPECT_EQ(measured_, 24);
  EXPECT_THAT(Read("report.md"), AllOf(HasSubstr("| 4 |"), HasSubstr("| 8 |")));
}

TEST_F(SweepTest, ResultsOfAnotherPlanAreRefusedAndStay) {
  ASSERT_TRUE(Run(Plan()).ok());
  SweepPlan plan = Plan();
  plan.requests = 21;
  const absl::Status status = Run(plan);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("its requests is 20 and not 21"));
  EXPECT_EQ(measured_, 12) << "nothing ran";
}

TEST_F(SweepTest, AFileThatIsNoResultIsRefused) {
  ASSERT_TRUE(Run(Plan()).ok());
  std::ofstream(folder_ + "/" + FileNameOf(PointsOf(Plan())[3])) << "{\"point\": [";
  const absl::Status status = Run(Plan());
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is no result of a sweep"));
}

TEST_F(SweepTest, ADryRunRunsAndWritesNothing) {
  ASSERT_TRUE(RunSweep(Plan(), folder_, SweepMode::kDryRun, nullptr).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(SweepTest, AFolderThatCannotBeMadeIsRefused) {
  std::ofstream(testing::TempDir() + "sweep_file") << "no folder";
  folder_ = testing::TempDir() + "sweep_file/results";
  const absl::Status status = Run(Plan());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--out="));
  EXPECT_EQ(measured_, 0);
  std::filesystem::remove(testing::TempDir() + "sweep_file");
}

TEST_F(SweepTest, TheReportHasMeansOverSeedsWithIntervalsAndWarnsOfFewRequests) {
  ASSERT_TRUE(Run(Plan()).ok());
  const std::string report = Read("report.md");
  // Three samples a tenth apart: 4.303 * 0.1 / sqrt(3).
  EXPECT_THAT(report, HasSubstr("| 4 | 3.200 ± 0.248 | 2.200 ± 0.248 |"));
  EXPECT_THAT(report, HasSubstr("| agentic | +45.5 to +45.5% | -31.2 to -31.2% |"));
  EXPECT_THAT(report, HasSubstr("Fewer than 1000 requests per point"));
  const std::string page = Read("report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("<svg"), HasSubstr("split-1-1"), Not(HasSubstr("http://"))));
}

TEST_F(SweepTest, TheReportHoldsAutoAgainstEveryOtherStrategy) {
  SweepPlan plan = Plan();
  plan.strategies = {{.name = "all", .policy = "least-loaded", .unified = 2},
                     {.name = "pd", .policy = "least-loaded", .prefill = 1, .decode = 1},
                     {.name = "auto", .policy = "auto", .prefill = 1, .decode = 1}};
  ASSERT_TRUE(Run(plan).ok());
  const std::string report = Read("report.md");
  EXPECT_THAT(report, HasSubstr("It wins under 0 of 2 loads, ties under 0 and loses under 2."));
  EXPECT_THAT(report, HasSubstr("| short | 4 | 55.0% | all | 80.0% | -31.2"));
  const Json json = ParseOrderedJson(Read("sweep.json")).value;
  EXPECT_EQ(json["points"].size(), 18U);
  EXPECT_EQ(json["standings"].size(), 2U);
  EXPECT_EQ(json["standings"][0]["winner"], "all");
  EXPECT_EQ(json["standings"][0]["comparisons"][0]["standing"], "loses");
}

TEST_F(SweepTest, TheReportSaysWhereDevicesWereSimulated) {
  ASSERT_TRUE(Run(Plan()).ok());
  EXPECT_THAT(Read("report.md"), Not(HasSubstr("Simulated")));
  std::filesystem::remove_all(folder_);
  simulated_ = true;
  ASSERT_TRUE(Run(Plan()).ok());
  EXPECT_THAT(Read("report.md"), HasSubstr("Simulated devices: no figure is a measurement"));
}

TEST(SeedMeanTest, NeedsTwoSeedsForAnInterval) {
  EXPECT_EQ(MeanOverSeeds({}).mean, 0);
  EXPECT_EQ(MeanOverSeeds({5}).mean, 5);
  EXPECT_EQ(MeanOverSeeds({5}).half_width, 0);
  EXPECT_EQ(MeanOverSeeds({4, 6}).mean, 5);
  EXPECT_NEAR(MeanOverSeeds({4, 6}).half_width, 12.706, 1e-3);
}

TEST(MeasurePointTest, JudgesAnswersByTheObjectivesOfThePlan) {
  Schedule schedule;
  for (int i = 0; i < 40; ++i) {
    schedule.requests.push_back({.at = std::chrono::milliseconds(i / 4),
                                 .prompt = {{.seed = 1, .tokens = 3}},
                                 .output_tokens = 2,
                                 .cancel_after = std::nullopt});
  }
  // Half of the answers are cut off.
  ScriptedBackend backend([](size_t number, CallObserver& observer) {
    ScriptedBackend::AnswerWhole(observer, number % 2 == 0 ? 2 : 1);
  });
  const SweepPlan plan = {.strategies = {}, .objectives = {.ttft = 60000}};
  const auto result =
      MeasurePoint(plan, {.strategy = {.name = "mine"}, .rate = 3}, schedule, backend);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)["label"], "mine");
  EXPECT_EQ((*result)["request_rate"], 3);
  EXPECT_EQ((*result)["schedule_hash"], schedule.HashText());
  EXPECT_EQ(NumberIn(*result, "slo_attainment", "share"), 0.5);
  EXPECT_EQ(NumberIn(*result, "completed") + NumberIn(*result, "wrong_length"), 36)
      << "four arrived in the first twentieth of the time";
}

}  // namespace
}  // namespace tandem::loadgen::sweep_test
