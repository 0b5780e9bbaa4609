// `tandem bench sweep` starts a real service for each point.

#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/tree.h"

namespace tandem::bench_sweep_test {
namespace {

using ::testing::HasSubstr;

class BenchSweepTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "bench_sweep_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  CommandResult Sweep(const std::string& flags) const {
    return Shell("bench sweep --workers 2 --workloads short --rates 20 --seeds 7 --context 512 " +
                 flags + " --out " + folder_ + " 2>&1");
  }
  CommandResult SweepSampleModel(const std::string& flags) const {
    return Sweep(flags + " --up-flag=--threads=1 --up-flag=--profile-at-start=off --model " +
                 SampleModel());
  }
  nlohmann::json ResultOf(const std::string& strategy) const {
    return ParseJson(ReadFile(folder_ + "/short_20rps_seed7_" + strategy + ".json"));
  }

  std::string folder_;
};

TEST_F(BenchSweepTest, ServesEachStrategyAndKeepsItsResults) {
  const std::string goal = " --goodput e2el:60000";
  const CommandResult result = SweepSampleModel("--num-prompts 20" + goal);
  ASSERT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("fewer than 1000 requests"));
  std::string hash;
  for (const auto& [strategy, route] : {std::pair<std::string, std::string>{"unified-2", "unified"},
                                        {"split-1-1", "disaggregated"}}) {
    const nlohmann::json json = ResultOf(strategy);
    EXPECT_EQ(json["result"]["slo_attainment"]["share"], 1) << strategy;
    EXPECT_EQ(json["result"]["routes"], nlohmann::json({{route, 20}}));
    if (hash.empty()) hash = json["schedule_hash"];
    EXPECT_EQ(json["schedule_hash"], hash) << "another strategy, the same requests";
  }
  EXPECT_THAT(ReadFile(folder_ + "/report.md"), HasSubstr("## short"));

  const CommandResult again = SweepSampleModel("--num-prompts 20" + goal);
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_THAT(again.output, HasSubstr("2 of them measured before"));
  EXPECT_THAT(again.output, testing::Not(HasSubstr("[1/2]")));
  const CommandResult other = SweepSampleModel("--num-prompts 21" + goal);
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.output, HasSubstr("belongs to another sweep: its requests is 20 and not 21"));
}

TEST_F(BenchSweepTest, ServesFromSimulatedDevicesWithoutAModel) {
  const CommandResult result = Sweep(
      "--num-prompts 20 --goodput e2el:60000 --strategy one:least-loaded:unified=1 "
      "--device simulated:" +
      TreePath("models/simulated/qwen3-8b-h200.json"));
  ASSERT_EQ(result.exit_status, 0) << result.output;
  const nlohmann::json json = ResultOf("one");
  EXPECT_EQ(json["result"]["slo_attainment"]["share"], 1);
  EXPECT_EQ(json["result"]["simulated"], true);
}

TEST_F(BenchSweepTest, RunsOnTheVirtualClockAndGoesOnWhereItStopped) {
  const std::string flags = "--num-prompts 50 --goodput ttft:500 --simulate " +
                            TreePath("models/simulated/qwen3-8b-h200.json");
  const CommandResult result = Sweep(flags);
  ASSERT_EQ(result.exit_status, 0) << result.output;
  EXPECT_EQ(ResultOf("unified-2")["result"]["simulated"], true);
  EXPECT_EQ(ResultOf("split-1-1")["schedule_hash"], ResultOf("unified-2")["schedule_hash"]);
  EXPECT_THAT(ReadFile(folder_ + "/report.md"), HasSubstr("Simulated devices"));
  EXPECT_THAT(Sweep(flags).output, HasSubstr("2 of them measured before"));
}

TEST_F(BenchSweepTest, MapsAreWrittenAndBadOnesAreRefused) {
  const std::string machine =
      " --simulate " + TreePath("models/simulated/qwen3-8b-h200.json") + " --out " + folder_;
  const CommandResult crossover = Shell(
      "bench crossover --links 1 --prompts 256 --loads 0.2 --num-prompts 10 --samples 1" + machine);
  EXPECT_EQ(crossover.exit_status, 0) << crossover.output;
  EXPECT_EQ(ParseJson(ReadFile(folder_ + "/crossover.json"))["cells"].size(), 1U);
  const CommandResult objectives = Shell(
      "bench slo-map --workers 3 --workloads short --rates 20 --num-prompts 20 --seeds 1 --ttft "
      "500 "
      "--tpot 20" +
      machine);
  EXPECT_EQ(objectives.exit_status, 0) << objectives.output;
  EXPECT_EQ(ParseJson(ReadFile(folder_ + "/slo_map.json"))["maps"].size(), 1U);
  const std::pair<std::string, std::string> wrong[] = {
      {"bench crossover --links -3", "--links: -3"},
      {"bench crossover --policy lucky", "lucky"},
      {"bench slo-map --rates 20 --ttft 0", "--ttft: 0"},
      {"bench slo-map --workloads tall --rates 20", "workload tall"},
  };
  for (const auto& [command, what] : wrong) {
    const CommandResult result = Shell(command + machine + " 2>&1");
    EXPECT_EQ(result.exit_status, 1) << command;
    EXPECT_THAT(result.output, HasSubstr(what));
  }
}

TEST_F(BenchSweepTest, BadPlansAreRefusedBeforeAnythingRuns) {
  const std::pair<std::string, std::string> wrong[] = {
      {"--goodput ttft:0", "--goodput ttft:0"},
      {"--goodput ttft:9 --strategy a:least-loaded:unified=2 --strategy b:least-loaded:unified=3",
       "only equal resources"},
      {"--goodput ttft:9 --strategy a:lucky:unified=2", "the policy lucky is none of"},
      {"--goodput ttft:9 --num-prompts -5", "--num-prompts=-5"},
      {"--goodput ttft:9 --simulate a.json --up-flag=--threads=1", "--up-flag=--threads=1"},
      {"--goodput ttft:9 --simulate a.json --device cuda:0", "--device=cuda:0"},
      {"--goodput ttft:9 --simulate nowhere.json", "nowhere.json"},
      {"--goodput ttft:9 --simulate a.json --link-gb-per-s -1", "--link-gb-per-s=-1"},
      {"--goodput ttft:9 --link-gb-per-s 3", "--link-gb-per-s=3 goes with --simulate"},
      {"--goodput ttft:9 --kv-tokens 3", "--kv-tokens=3 goes with --simulate"},
      {"--goodput ttft:9 --rates-of short", "--rates-of short: give WORKLOAD=RATE"},
  };
  for (const auto& [flags, what] : wrong) {
    const CommandResult result = Sweep(flags);
    EXPECT_EQ(result.exit_status, 1) << flags;
    EXPECT_THAT(result.output, HasSubstr(what));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(BenchSweepTest, AServiceThatCannotStartIsReported) {
  const CommandResult result = Sweep("--num-prompts 5 --goodput ttft:9 --model /no/such/model");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.output, HasSubstr("the service for unified-2 could not start"));
}

}  // namespace
}  // namespace tandem::bench_sweep_test
