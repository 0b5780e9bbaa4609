// `tandem bench serve` against a real router and real workers.

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"

namespace tandem::bench_serve_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class BenchServeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster(); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void SetUp() override {
    folder_ = testing::TempDir() + "bench_serve_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  CommandResult Bench(const std::string& flags) const {
    return Shell("bench serve --server " + cluster_->address() + " " + flags + " 2>&1");
  }
  std::string InFolder(const std::string& name) const { return folder_ + "/" + name; }
  std::string ResultFlags() const {
    return " --save-result --result-dir " + folder_ + " --result-filename result.json ";
  }
  nlohmann::json Result() const { return ParseJson(ReadFile(InFolder("result.json"))); }

  static TestCluster* cluster_;
  std::string folder_;
};
TestCluster* BenchServeTest::cluster_ = nullptr;

TEST_F(BenchServeTest, AnOpenLoopIsWholeOnBothRoutesAndTheStagesAddUp) {
  std::string hash;
  for (const std::string route : {"unified", "disaggregated"}) {
    const CommandResult result = Bench(
        "--request-rate 100 --num-prompts 20 --input-len uniform:20,60 --output-len uniform:1,12 "
        "--goodput ttft:60000 e2el:60000 --num-warmups 2 --seed 3 --save-detailed "
        "--save-requests " +
        InFolder("requests.jsonl") + " --save-html " + InFolder("page.html") + " --route " + route +
        ResultFlags());
    ASSERT_EQ(result.exit_status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("Successful requests:                     20 "));
    EXPECT_THAT(result.output, HasSubstr("Failed requests:                         0 "));
    EXPECT_THAT(result.output, HasSubstr("Requests whose stages do not add up:     0 "));
    EXPECT_THAT(result.output, Not(HasSubstr("\033"))) << "a progress bar without a terminal";
    const nlohmann::json json = Result();
    EXPECT_EQ(json["completed"], 20);
    EXPECT_EQ(json["slo_attainment"]["share"], 1);
    EXPECT_EQ(json["ttfts"].size(), 20u);
    EXPECT_FALSE(json.contains("predictions"));
    if (hash.empty()) hash = json["schedule_hash"];
    EXPECT_EQ(json["schedule_hash"], hash) << "another strategy, the same requests";

    std::istringstream lines(ReadFile(InFolder("requests.jsonl")));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const nlohmann::json row = ParseJson(line);
      EXPECT_EQ(row["verdict"], "complete");
      EXPECT_EQ(row["route"], route);
      double sum = 0;
      for (const auto& [stage, ms] : row["server_stages_ms"].items()) {
        if (stage != "ttft") sum += ms.get<double>();
      }
      EXPECT_NEAR(sum, row["server_stages_ms"]["ttft"].get<double>(), 0.01);
    }
    EXPECT_EQ(count, 20);
    EXPECT_THAT(ReadFile(InFolder("page.html")), HasSubstr("<svg"));
  }
  cluster_->WaitUntilIdle();
}

TEST_F(BenchServeTest, AClosedLoopNeverHasMoreRequestsUnderWayThanItMay) {
  const CommandResult result =
      Bench("--max-concurrency 3 --num-prompts 12 --input-len 20 --output-len 8" + ResultFlags());
  ASSERT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("closed loop"));
  const nlohmann::json json = Result();
  EXPECT_EQ(json["completed"], 12);
  EXPECT_EQ(json["max_concurrent_requests"], 3);
  EXPECT_EQ(json["request_rate"], "inf");
}

TEST_F(BenchServeTest, PromptsOfATraceFindTheirSharedBlocksInThePrefixCache) {
  const std::string path = InFolder("trace.jsonl");
  std::ofstream trace(path);
  for (int i = 0; i < 6; ++i) {
    trace << "{\"timestamp\": " << i * 0.2 << ", \"input_length\": 200, \"output_length\": 2, "
          << "\"hash_ids\": [1,2,3,4,5,6,7,8,9,10,11," << 100 + i << "]}\n";
  }
  trace.close();
  const CommandResult result =
      Bench("--dataset-name bailian --dataset-path " + path + " --route unified --save-requests " +
            InFolder("requests.jsonl"));
  ASSERT_EQ(result.exit_status, 0) << result.output;
  std::istringstream lines(ReadFile(InFolder("requests.jsonl")));
  std::string line;
  std::getline(lines, line);
  int with_hits = 0;
  while (std::getline(lines, line)) {
    // 11 blocks of 16 tokens are equal.
    if (ParseJson(line)["cached_tokens"].get<int>() >= 11 * 16 - 16) ++with_hits;
  }
  EXPECT_EQ(with_hits, 5);
}

TEST_F(BenchServeTest, CancelledRequestsAreNeitherFailedNorCompleteAndGiveTheirBlocksBack) {
  const CommandResult result = Bench(
      "--request-rate 200 --num-prompts 20 --input-len 20 --output-len 1500 "
      "--request-cancellation-rate 100 --request-cancellation-delay 0.01" +
      ResultFlags());
  EXPECT_EQ(result.exit_status, 1) << "nothing was complete";
  const nlohmann::json json = Result();
  EXPECT_EQ(json["cancelled"], 20);
  EXPECT_EQ(json["failed"], 0);
  cluster_->WaitUntilIdle();
}

// Every objective is met at any rate, so the search goes up until it has no probe left.
TEST_F(BenchServeTest, TheSearchReportsEveryProbeWithItsSchedule) {
  const CommandResult result = Bench(
      "--request-rate 50 --num-prompts 5 --input-len 20 --output-len 2 --goodput ttft:60000 "
      "--find-goodput --max-probes 3 --probe-seconds 0.05" +
      ResultFlags());
  ASSERT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("highest rate with 90% good requests: 200.000 req/s"));
  EXPECT_THAT(result.output, HasSubstr("Successful requests:                     10 "))
      << "200 req/s for 0.05 s";
  const nlohmann::json json = Result();
  ASSERT_EQ(json["rate_search"].size(), 3u);
  EXPECT_EQ(json["rate_search"][2]["request_rate"], 200);
  EXPECT_EQ(json["request_rate"], 200);
}

TEST_F(BenchServeTest, WhatCannotBeRunIsRefusedBeforeAnythingIsSent) {
  const auto refused = [this](const std::string& flags, const std::string& text) {
    const CommandResult result = Bench(flags);
    EXPECT_EQ(result.exit_status, 1) << flags;
    EXPECT_THAT(result.output, HasSubstr("error: ")) << flags;
    EXPECT_THAT(result.output, HasSubstr(text)) << flags;
    EXPECT_THAT(result.output, Not(HasSubstr("Benchmark Result"))) << flags;
  };
  const auto total = [] {
    return cluster_->client().GetStatus(std::chrono::seconds(10))->requests_total();
  };
  const uint64_t before = total();
  refused("--request-rate -1", "--request-rate=-1");
  refused("--request-rate 0", "--request-rate=0");
  refused("--request-rate nan", "--request-rate=nan");
  refused("--request-rate 1 --burstiness 0", "--burstiness=0");
  refused("--goodput ttft:0", "--goodput ttft:0");
  refused("--dataset-name shakespeare", "--dataset-name=shakespeare: use random, or a trace");
  refused("--dataset-name azure", "give --dataset-path");
  refused("--dataset-name azure --dataset-path /nowhere.csv", "/nowhere.csv");
  refused("--input-len 0", "--input-len=0");
  refused("--input-len 4000", "context of 2048 tokens");
  refused("--find-goodput --request-rate 1", "--find-goodput needs objectives");
  refused("--find-goodput --goodput ttft:1 --request-rate 1 --attainment 2", "--attainment=2");
  refused("--find-goodput --goodput ttft:1 --request-rate 1 --probe-seconds 0",
          "--probe-seconds=0");
  refused("--find-goodput --goodput ttft:1", "--find-goodput begins at --request-rate");
  refused("--request-rate 100 --num-prompts 10 --warmup-seconds 60", "--warmup-seconds=60");
  refused("--backend smoke", "--backend=smoke: use tandem, openai or openai-chat");
  refused("--save-html /nowhere/page.html", "/nowhere");
  const std::string path = InFolder("backwards.csv");
  std::ofstream(path) << "Timestamp,Request tokens,Response tokens\n5,1,1\n4,1,1\n";
  refused("--dataset-name burstgpt --dataset-path " + path, "line 3: its time is 1 s before");
  const CommandResult nobody = Shell("bench serve --server 127.0.0.1:1 2>&1");
  EXPECT_EQ(nobody.exit_status, 1);
  EXPECT_THAT(nobody.output, HasSubstr("no router answers at 127.0.0.1:1"));
  EXPECT_EQ(total(), before);
}

TEST_F(BenchServeTest, ADryRunPrintsTheHashOfTheSeedAndNeedsNoServer) {
  const std::string flags =
      "bench serve --dry-run --server 127.0.0.1:1 --num-prompts 10 "
      "--request-rate 5 --seed ";
  const CommandResult one = Shell(flags + "1");
  EXPECT_EQ(one.exit_status, 0);
  EXPECT_THAT(one.output, StartsWith("schedule "));
  EXPECT_EQ(Shell(flags + "1").output, one.output);
  EXPECT_NE(Shell(flags + "2").output, one.output);
}

}  // namespace
}  // namespace tandem::bench_serve_test
