// The daemon on a GPU that is emulated (tests/simt/README.md), and what it says where it cannot
// serve on one.

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::emulated_daemon_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Steps of each size that decodes are filled up to run at the start, which takes long on this GPU.
const std::string kFewSizes = "--max-sequences=8";

// Both streams of the command, which must end by itself.
CommandResult Ended(const std::string& command) {
  return RunInShell("timeout 60 " + command + " 2>&1");
}

// A worker that cannot start.
CommandResult Worker(const std::string& binary, const std::string& flags) {
  return Ended(binary + " worker --role unified --router 127.0.0.1:1 --log-level=error --model=" +
               SampleModel() + " " + flags);
}

int CountLines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(EmulatedDaemonTest, ServesWhatTransformersSays) {
  const nlohmann::json golden =
      ParseJson(ReadFile(TreePath("tests/golden/logits/sample.json")))["cases"][0];
  TestCluster cluster({.binary = EmulatedDaemonBinary(),
                       .prefill = 0,
                       .decode = 0,
                       .unified = 1,
                       .worker_flags = {"--device=cuda:0", "--batch-invariant", kFewSizes}});
  cluster.WaitFor("the status names the device", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
    return worker != nullptr && worker->device() == "cuda:0";
  });
  constexpr size_t kTokens = 16;
  const Outcome outcome =
      Ask(cluster.client(), TextRequest(golden["text"], v1::ROUTE_UNIFIED, kTokens));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  std::vector<int32_t> expected = golden["greedy_ids"];
  expected.resize(kTokens);
  EXPECT_EQ(outcome.generation.choices.at(0).token_ids, expected);
  cluster.WaitUntilIdle();
}

TEST(EmulatedDaemonTest, TwoWorkersShareTheDevice) {
  TestCluster cluster(
      {.binary = EmulatedDaemonBinary(),
       .prefill = 0,
       .decode = 0,
       .unified = 2,
       .worker_flags = {"--device=cuda", "--device-memory-fraction=0.45", kFewSizes}});
  for (int i = 0; i < 4; ++i) {
    const Outcome outcome = Ask(cluster.client(), TextRequest("It was a", v1::ROUTE_UNIFIED, 4));
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  }
}

TEST(EmulatedDaemonTest, UpStartsOneUnifiedWorker) {
  auto up = ChildProcess::Start({"up", "--device=cuda", "--port=0", "--profile-at-start=off",
                                 "--model=" + SampleModel(), kFewSizes},
                                EmulatedDaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  Client client(up->TakeReadyLine());
  const auto status = client.GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->workers_size(), 1);
  EXPECT_EQ(status->workers(0).name(), "unified-0");
  EXPECT_EQ(status->workers(0).device(), "cuda:0");
  up->Signal(SIGTERM);
  int how = 0;
  waitpid(up->pid(), &how, 0);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

TEST(EmulatedDaemonTest, ADeviceThatIsNotThereIsAnErrorOfOneLine) {
  const std::string binary = EmulatedDaemonBinary();
  const CommandResult seventh = Worker(binary, "--device cuda:7");
  EXPECT_NE(seventh.exit_status, 0);
  EXPECT_THAT(seventh.output, AllOf(HasSubstr("cuda:7"), HasSubstr("cuda:0")));
  EXPECT_EQ(CountLines(seventh.output), 1) << seventh.output;
  const CommandResult unknown = Worker(binary, "--device gpu");
  EXPECT_NE(unknown.exit_status, 0);
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("device gpu"), HasSubstr("cpu, cpu-bf16, cuda:0")));
  EXPECT_EQ(CountLines(unknown.output), 1) << unknown.output;
}

TEST(EmulatedDaemonTest, WhatDoesNotFitIsAnErrorOfOneLine) {
  const CommandResult pool = Worker(EmulatedDaemonBinary(), "--device cuda:0 --kv-bytes 40GiB");
  EXPECT_NE(pool.exit_status, 0);
  EXPECT_THAT(pool.output, AllOf(HasSubstr("cuda:0"), HasSubstr("GB"), HasSubstr("free")));
  EXPECT_EQ(CountLines(pool.output), 1) << pool.output;
  const CommandResult fraction =
      Worker(EmulatedDaemonBinary(), "--device cuda:0 --device-memory-fraction 0.01");
  EXPECT_NE(fraction.exit_status, 0);
  EXPECT_THAT(fraction.output, HasSubstr("raise --device-memory-fraction"));
  EXPECT_EQ(CountLines(fraction.output), 1) << fraction.output;
}

TEST(EmulatedDaemonTest, BuffersThatHoldNoConnectionAreRefusedWithTheLeastThatDo) {
  const CommandResult refused = Ended(EmulatedDaemonBinary() +
                                      " worker --role prefill --router 127.0.0.1:1 "
                                      "--log-level=error --device cuda:0 --kv-transport=shm "
                                      "--kv-buffer-bytes=4MiB --model=" +
                                      SampleModel());
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("--kv-buffer-bytes=4194304"), HasSubstr("16777216")));
  EXPECT_EQ(CountLines(refused.output), 1) << refused.output;
}

// Prefill and decode workers, each on the GPU, of any layouts: the tokens of transformers.
void ExpectHandoffsAsTransformersSays(const std::string& transport,
                                      std::vector<std::string> prefill_flags = {},
                                      std::vector<std::string> decode_flags = {}) {
  const nlohmann::json golden =
      ParseJson(ReadFile(TreePath("tests/golden/logits/sample.json")))["cases"][0];
  TestCluster cluster(
      {.binary = EmulatedDaemonBinary(),
       .prefill = 1,
       .decode = 1,
       .unified = 0,
       .worker_flags = {"--device=cuda:0", "--batch-invariant", "--device-memory-fraction=0.45",
                        "--kv-transport=" + transport, kFewSizes},
       .prefill_flags = std::move(prefill_flags),
       .decode_flags = std::move(decode_flags)});
  constexpr size_t kTokens = 16;
  std::vector<int32_t> expected = golden["greedy_ids"];
  expected.resize(kTokens);
  for (int i = 0; i < 2; ++i) {  // the second with its prompt in both prefix caches
    const Outcome outcome =
        Ask(cluster.client(), TextRequest(golden["text"], v1::ROUTE_DISAGGREGATED, kTokens));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.generation.choices.at(0).token_ids, expected);
  }
  cluster.WaitUntilIdle();
}

class EmulatedHandoffTest : public testing::TestWithParam<std::string> {};

TEST_P(EmulatedHandoffTest, ServesWhatTransformersSays) {
  ExpectHandoffsAsTransformersSays(GetParam());
}

// Converted on the GPU of the decode worker.
TEST_P(EmulatedHandoffTest, ServesTheSameFromBlocksOfAnotherSize) {
  ExpectHandoffsAsTransformersSays(GetParam(), {"--block-tokens=16"}, {"--block-tokens=64"});
}

INSTANTIATE_TEST_SUITE_P(Transports, EmulatedHandoffTest,
                         testing::Values("ipc", "nccl", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

// With weights of 8 bits, which a GPU computes with, too.
TEST(EmulatedDaemonTest, UpStartsTheWorkersThatItIsAskedFor) {
  auto up = ChildProcess::Start(
      {"up", "--device=cuda", "--prefill=1", "--decode=1", "--unified=0", "--port=0",
       "--weights=int8", "--profile-at-start=off", "--model=" + SampleModel(), kFewSizes},
      EmulatedDaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  Client client(up->TakeReadyLine());
  const Outcome outcome = Ask(client, TextRequest("It was a", v1::ROUTE_DISAGGREGATED, 4));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  up->Signal(SIGTERM);
  int how = 0;
  waitpid(up->pid(), &how, 0);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

TEST(EmulatedDaemonTest, DemoComparesItsRoutesOnTheDeviceThatItIsGiven) {
  const CommandResult demo = Ended(EmulatedDaemonBinary() +
                                   " demo --device=cuda:0 --max-tokens=4 --model=" + SampleModel());
  EXPECT_EQ(demo.exit_status, 0) << demo.output;
  EXPECT_THAT(demo.output, AllOf(HasSubstr("device cuda:0"), HasSubstr("All held.")));
}

TEST(EmulatedDaemonTest, DemoOnADeviceThatIsNotThereEndsWithTheReason) {
  const CommandResult demo =
      Ended(DaemonBinary() + " demo --device=cuda:7 --model=" + SampleModel());
  EXPECT_NE(demo.exit_status, 0);
  EXPECT_THAT(demo.output, HasSubstr("cuda:7"));
}

// The binary as it is built here, on a machine that may have no GPU.
TEST(EmulatedDaemonTest, WithoutADriverTheAnswerIsNotTheCpu) {
  const std::string version = Ended(DaemonBinary() + " version").output;
  if (version.find("devices: cpu, cpu-bf16, cuda") != std::string::npos) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  const CommandResult worker = Worker(DaemonBinary(), "--device cuda");
  EXPECT_NE(worker.exit_status, 0);
  EXPECT_THAT(worker.output, AllOf(HasSubstr("cuda:0"), HasSubstr("--device cpu")));
  EXPECT_EQ(CountLines(worker.output), 1) << worker.output;
  EXPECT_THAT(version, AllOf(HasSubstr("devices: cpu, cpu-bf16\nno GPU: device cuda:0: "),
                             HasSubstr("--device cpu")));
}

TEST(EmulatedDaemonTest, VersionNamesTheDevices) {
  const CommandResult version = Ended(EmulatedDaemonBinary() + " version");
  EXPECT_EQ(version.exit_status, 0);
  EXPECT_THAT(version.output,
              AllOf(HasSubstr("devices: cpu, cpu-bf16, cuda:0"), Not(HasSubstr("no GPU"))));
}

}  // namespace
}  // namespace tandem::emulated_daemon_test
