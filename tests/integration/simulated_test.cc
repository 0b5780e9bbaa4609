// Workers on simulated devices: real processes, a real router, real hand-offs, made-up tokens.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::simulated_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kShipped = TreePath("models/simulated/qwen3-8b-h200.json");
constexpr int64_t kModelBytesPerToken = 2 * 36 * 8 * 128 * 2;
constexpr int64_t kStoredBytesPerToken = 4 * 2 * 8;  // of the stand-in, one byte per number

TestClusterOptions Simulated(const std::string& file = kShipped) {
  return {.model = "",
          .router_flags = {"--simulated=" + file},
          .worker_flags = {"--device=simulated:" + file}};
}

v1::GenerateRequest TokenRequest(int32_t prompt_tokens, int32_t max_tokens, v1::Route route,
                                 int32_t first_token = 1) {
  v1::GenerateRequest request;
  auto& ids = *request.mutable_token_ids()->mutable_ids();
  ids.Resize(prompt_tokens, 0);
  std::iota(ids.begin(), ids.end(), first_token);
  request.set_max_tokens(max_tokens);
  request.mutable_sampling()->set_seed(5);
  request.set_route(route);
  return request;
}

class SimulatedFilesTest : public testing::Test {
 protected:
  SimulatedFilesTest() {
    std::string directory = ::testing::TempDir() + "simulatedXXXXXX";
    directory_ = mkdtemp(directory.data());
  }
  ~SimulatedFilesTest() override { std::filesystem::remove_all(directory_); }

  // The shipped file with one field changed.
  std::string Changed(const std::string& pointer, const Json& value) {
    Json json = ParseJson(ReadFile(kShipped));
    json[Json::json_pointer(pointer)] = value;
    const std::string path = directory_ / "device.json";
    std::ofstream(path) << json.dump();
    return path;
  }
  std::string Device(const std::string& path) const { return "--device simulated:" + path; }

  std::filesystem::path directory_;
};

TEST(SimulatedTest, EveryAnswerSaysThatItIsSimulatedAndIsTheSameOnBothRoutes) {
  TestCluster cluster(Simulated());
  const Outcome unified = Ask(cluster.client(), TokenRequest(200, 12, v1::ROUTE_UNIFIED));
  const Outcome apart = Ask(cluster.client(), TokenRequest(200, 12, v1::ROUTE_DISAGGREGATED));
  for (const Outcome& outcome : {unified, apart}) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(outcome.generation.summary.simulated());
    EXPECT_EQ(outcome.generation.summary.model(), "simulated/qwen3-8b-h200");
    EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), 12u);
  }
  EXPECT_EQ(unified.generation.choices[0].token_ids, apart.generation.choices[0].token_ids);
  const v1::ChoiceFinish& finish = apart.generation.choices[0].finish;
  EXPECT_EQ(finish.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(finish.kv_bytes().raw(), 200 * kStoredBytesPerToken) << "the prompt";

  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok());
  for (const v1::WorkerStatus& worker : status->workers()) {
    EXPECT_EQ(worker.device(), "simulated:qwen3-8b-h200");
    EXPECT_EQ(worker.load().total_blocks(), 735885 / 16);
  }
  const std::string generate =
      fmt::format("generate --token-ids 1,2,3 --max-tokens 4 --server {} ", cluster.address());
  EXPECT_THAT(Shell(generate + "2>&1").output, HasSubstr("simulated: no model computed this"));
  EXPECT_THAT(Shell(generate + "--json 2>/dev/null").output, HasSubstr("\"simulated\":true"));
  EXPECT_THAT(Shell("status --server " + cluster.address()).output,
              HasSubstr("simulated: workers take the times of a parameter file"));
  EXPECT_THAT(Shell(generate + "--json --model sample 2>&1").output, HasSubstr("NOT_FOUND"));
  cluster.WaitUntilIdle();
}

TEST(SimulatedTest, StepsAndTransfersTakeNoLessThanTheModelSays) {
  TestClusterOptions options = Simulated();
  options.unified = 0;
  constexpr double kSlowdown = 2;
  options.worker_flags.push_back(fmt::format("--simulated-slowdown={}", kSlowdown));
  options.worker_flags.push_back("--kv-bandwidth=2000000000");
  TestCluster cluster(options);
  constexpr int32_t kPrompt = 1600;
  const Outcome outcome = Ask(cluster.client(), TokenRequest(kPrompt, 11, v1::ROUTE_DISAGGREGATED));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  const Json step = ParseJson(ReadFile(kShipped))["step"];
  const v1::ChoiceFinish& finish = outcome.generation.choices[0].finish;
  const double prefill_ms = kPrompt * step["alpha"]["a1_ms"].get<double>() +
                            kPrompt * (kPrompt + 1) / 2 * step["alpha"]["a2_ms"].get<double>();
  // A step that began late by up to 20 ms makes that up for itself.
  EXPECT_GE(finish.stages().prefill_ms() + 20, kSlowdown * prefill_ms);
  const double decode_ms = step["beta"]["b0"][0]["ms"].get<double>() +
                           step["beta"]["b1_ms"].get<double>() +
                           kPrompt * step["beta"]["b2_ms"].get<double>();
  EXPECT_GE(finish.tpot_ms() / (kSlowdown * decode_ms), 0.9);
  // The link lets 2 ms of its rate pass at once, and the prefill hides a part.
  const double transfer_ms = static_cast<double>(kPrompt * kModelBytesPerToken) / 2e9 * 1e3;
  EXPECT_GE(finish.kv_bytes().transfer_ms() / transfer_ms, 0.9);
}

TEST(SimulatedTest, SixteenWorkersServeInLittleMemory) {
  TestClusterOptions options = Simulated();
  options.prefill = 6;
  options.decode = 8;
  options.unified = 2;
  TestCluster cluster(options);
  const CommandResult bench = Shell(fmt::format(
      "bench serve --server {} --num-prompts 60 --request-rate 60 --input-len 400 --output-len 8 "
      "--route disaggregated 2>&1",
      cluster.address()));
  EXPECT_EQ(bench.exit_status, 0) << bench.output;
  EXPECT_THAT(bench.output, HasSubstr("Successful requests:                     60 "));
  cluster.WaitUntilIdle();
  int64_t own_kb = 0;
  for (const char* role : {"prefill", "decode", "unified"}) {
    const std::string smaps =
        fmt::format("/proc/{}/smaps_rollup", cluster.pid(std::string(role) + "-0"));
    const CommandResult own = RunInShell("awk '/^Private/ {sum += $2} END {print sum}' " + smaps);
    own_kb = std::max<int64_t>(own_kb, std::stoll(own.output));
  }
  EXPECT_LT(own_kb, 100'000) << "of the largest worker";
}

TEST_F(SimulatedFilesTest, BenchSaysThatItsFiguresAreSimulated) {
  TestClusterOptions options = Simulated();
  options.prefill = options.decode = 0;
  TestCluster cluster(options);
  const CommandResult bench = Shell(fmt::format(
      "bench serve --server {} --num-prompts 8 --request-rate 100 --input-len 40 --output-len 4 "
      "--save-result --result-dir {} --result-filename r.json --save-requests {} 2>&1",
      cluster.address(), directory_.string(), (directory_ / "r.jsonl").string()));
  ASSERT_EQ(bench.exit_status, 0) << bench.output;
  EXPECT_THAT(bench.output, HasSubstr("a simulated device, not a real one"));
  EXPECT_EQ(ParseJson(ReadFile(directory_ / "r.json"))["simulated"], true);
  EXPECT_THAT(ReadFile(directory_ / "r.jsonl"), HasSubstr("\"simulated\":true"));
}

TEST_F(SimulatedFilesTest, UpNeedsNoModelAndTakesTheTokenizerOfOne) {
  const Json lengths = {
      {{"max_prompt_tokens", 4000},
       {"quantiles", {{{"share", 0}, {"tokens", 3}}, {{"share", 1}, {"tokens", 3}}}}}};
  const std::string file = Changed("/simulated/output_lengths", lengths);
  for (const std::string& model : {std::string(), SampleModel()}) {
    std::vector<std::string> arguments = {"up",         "--device=simulated:" + file,
                                          "--port=0",   "--prefill=0",
                                          "--decode=0", "--log-level=error"};
    if (!model.empty()) arguments.push_back("--model=" + model);
    auto up = ChildProcess::Start(arguments, DaemonBinary());
    ASSERT_TRUE(up.ok()) << up.status();
    const std::string address = up->TakeReadyLine();
    ASSERT_FALSE(address.empty());
    const std::string prompt = model.empty() ? "--token-ids 1,2" : "\"It was\"";
    const CommandResult answer = Shell(
        fmt::format("generate {} --json --max-tokens 50 --server {} 2>/dev/null", prompt, address));
    const Json json = ParseJson(answer.output);
    EXPECT_EQ(json["token_ids"].size(), 3u) << "ended by the token that ends a text";
    EXPECT_EQ(json["finish_reason"], "stop");
    const CommandResult text = Shell("generate \"It was\" --server " + address + " 2>&1");
    EXPECT_EQ(text.exit_status, model.empty() ? 1 : 0) << text.output;
    up->Signal(SIGTERM);
    int how = 0;
    EXPECT_EQ(waitpid(up->pid(), &how, 0), up->pid());
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  }
}

TEST_F(SimulatedFilesTest, WhatCannotBeIsRefusedBeforeAnythingRuns) {
  const auto refused = [](const std::string& arguments) {
    const CommandResult result = Shell(arguments + " 2>&1");
    EXPECT_EQ(result.exit_status, 1) << result.output;
    return result.output;
  };
  const std::string worker = "worker --role unified --router 127.0.0.1:1 ";
  EXPECT_THAT(refused(worker + Device("/nowhere.json")), HasSubstr("/nowhere.json"));
  EXPECT_THAT(refused("up " + Device("/nowhere.json")), HasSubstr("/nowhere.json"));
  EXPECT_THAT(refused("router --simulated /nowhere.json"), HasSubstr("/nowhere.json"));
  EXPECT_THAT(refused("up " + Device(Changed("/step/alpha/a1_ms", -1))), HasSubstr("alpha.a1_ms"));
  EXPECT_THAT(refused(worker + Device(Changed("/simulated/kv_tokens", nullptr))),
              HasSubstr("simulated.kv_tokens"));
  EXPECT_THAT(refused(worker + Device(Changed("/step/alpha/a1_ms", 1000))),
              HasSubstr("at most 60 s"));
  EXPECT_THAT(refused(worker + Device(kShipped) + " --model-name qwen3"), HasSubstr("simulated/"));
  EXPECT_THAT(refused("up --model-name qwen3 " + Device(kShipped)), HasSubstr("simulated/"));
  EXPECT_THAT(refused(worker + Device(kShipped) + " --host-kv-bytes 1MiB"),
              HasSubstr("--host-kv-bytes"));
  EXPECT_THAT(refused(worker + Device(kShipped) + " --kv-dtype f16"), HasSubstr("--kv-dtype"));
  EXPECT_THAT(refused(worker), HasSubstr("--model is missing"));
  EXPECT_THAT(refused("up"), HasSubstr("--model is missing"));
  EXPECT_THAT(refused("router"), HasSubstr("--model is missing"));
  EXPECT_THAT(refused(worker + "--simulated-slowdown 2 --model " + SampleModel()),
              HasSubstr("--device cpu is not simulated"));
}

}  // namespace
}  // namespace tandem::simulated_test
