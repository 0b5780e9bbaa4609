// `tandem profile` as people and scripts use it, with steps small enough for a test.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::profile_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSmall =
    "profile --model " + SampleModel() +
    " --quick --threads 1 --max-step-tokens 32 --max-sequences 8 --max-context 64";

// A profile takes seconds, so all tests look at the files of one.
class ProfileCommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string directory = ::testing::TempDir() + "profileXXXXXX";
    directory_ = mkdtemp(directory.data());
    profile_ = Shell(
        fmt::format("{} --out {} --report {} 2>&1", kSmall, Parameters(), File("report.html")));
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  void SetUp() override { ASSERT_EQ(profile_.exit_status, 0) << profile_.output; }

  static std::string File(const std::string& name) { return directory_ / name; }
  static std::string Parameters() { return File("cost.json"); }

  // Equal digests: simulated requests took the same steps at the same times.
  static std::string SimulatedDigest(const std::string& file, const std::string& flags) {
    const CommandResult run = Shell(
        fmt::format("simulate --fleet unified=1:{} --model {} --kv-tokens 4096 --num-prompts 4 "
                    "--input-len 32 --output-len 8 {} 2>&1",
                    file, SampleModel(), flags));
    EXPECT_EQ(run.exit_status, 0) << run.output;
    const size_t digest = run.output.find("Digest");
    EXPECT_NE(digest, std::string::npos) << run.output;
    return digest == std::string::npos
               ? ""
               : run.output.substr(digest, run.output.find('\n', digest) - digest);
  }

  static inline std::filesystem::path directory_;
  static inline CommandResult profile_;
};

TEST_F(ProfileCommandTest, WritesParametersThatFitThisMachineAndAPageWithPlots) {
  EXPECT_THAT(profile_.output, HasSubstr("alpha.a1"));
  EXPECT_THAT(profile_.output, HasSubstr("held out mixed"));

  const auto json = ParseJson(ReadFile(Parameters()));
  EXPECT_EQ(json["format"], "tandem-cost-model");
  EXPECT_EQ(json["provenance"]["device"], "cpu");
  EXPECT_EQ(json["provenance"]["threads"], 1);
  EXPECT_GT(json["classic"]["alpha_ms_per_token"], 0);
  EXPECT_GT(json["classic"]["beta_ms"], 0);
  EXPECT_GT(json["classic"]["bandwidth_gb_per_s"], 0);
  EXPECT_EQ(json["links"].size(), 2u);
  EXPECT_EQ(json["fit"]["held_out"].size(), 3u);
  EXPECT_FALSE(json["step"]["gamma"]["ms"].empty());

  const std::string page = ReadFile(File("report.html"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("Predicted and measured"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));

  EXPECT_EQ(Shell(fmt::format("{} --check {} 2>&1", kSmall, Parameters())).exit_status, 0);
}

TEST_F(ProfileCommandTest, ParametersOfOtherFlagsAreRefusedWithTheReason) {
  const CommandResult other =
      Shell(fmt::format("{} --block-tokens 32 --check {} 2>&1", kSmall, Parameters()));
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.output, HasSubstr("block tokens 16, and here it is 32"));
  const std::string file = File("other.json");
  std::ofstream(file) << "{\"format\": \"other\"}";
  const CommandResult foreign = Shell(fmt::format("{} --check {} 2>&1", kSmall, file));
  EXPECT_EQ(foreign.exit_status, 1);
  EXPECT_THAT(foreign.output, HasSubstr("this is no parameter file"));
}

// How many workers report a model from there.
int64_t CountCosts(const v1::GetStatusResponse& status, v1::CostModel::Source source) {
  return std::ranges::count_if(status.workers(), [source](const v1::WorkerStatus& worker) {
    return worker.load().cost().source() == source;
  });
}

TEST_F(ProfileCommandTest, WorkersPredictFromAFileThatFitsAndRefuseOneThatDoesNot) {
  const std::string out = Parameters();
  TestCluster cluster({.worker_flags = {"--cost-model=" + out}});
  cluster.WaitFor("every worker reports the file's model", [](const auto& status) {
    return CountCosts(status, v1::CostModel::SOURCE_FILE) == 3;
  });
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  const auto json = ParseJson(ReadFile(out));
  for (const v1::WorkerStatus& worker : status->workers()) {
    EXPECT_EQ(worker.load().cost().alpha().token_ms(), json["step"]["alpha"]["a1_ms"]);
    EXPECT_EQ(worker.load().cost().revision(), 1u);
  }
  const CommandResult table = Shell("status --costs --server " + cluster.address());
  EXPECT_THAT(table.output, HasSubstr("COST OF"));
  EXPECT_THAT(table.output, HasSubstr("decode-0       file "));

  auto slow = json;
  slow["step"]["alpha"]["a1_ms"] = 10 * json["step"]["alpha"]["a1_ms"].get<double>();
  std::ofstream(File("slow.json")) << slow.dump();
  const std::string served = "--costs-of " + cluster.address();
  EXPECT_NE(SimulatedDigest(File("slow.json"), ""), SimulatedDigest(out, ""));
  EXPECT_EQ(SimulatedDigest(File("slow.json"), served), SimulatedDigest(out, ""))
      << "steps take what the workers report";

  const auto worker = [&](const std::string& flags) {
    return Shell(
        fmt::format("worker --role unified --log-level off --model {} "
                    "--router {} {} 2>&1",
                    SampleModel(), cluster.address(), flags));
  };
  const CommandResult other =
      worker(fmt::format("--threads 1 --block-tokens 32 --cost-model {}", out));
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.output, HasSubstr("--cost-model " + out));
  EXPECT_THAT(other.output, HasSubstr("block tokens 16, and here it is 32: run `tandem profile`"));
  EXPECT_THAT(worker("--cost-model /absent.json").output,
              HasSubstr("/absent.json cannot be opened"));
  EXPECT_THAT(worker("--profile-at-start never").output, HasSubstr("neither off nor a number"));
  EXPECT_THAT(worker("--profile-at-start=-1").output, HasSubstr("neither off nor a number"));
  EXPECT_THAT(Shell("simulate --costs-of 127.0.0.1:1 --fleet unified=1:" + out + " 2>&1").output,
              HasSubstr("--costs-of 127.0.0.1:1"));
}

TEST_F(ProfileCommandTest, WorkersWithoutAFileMeasureThemselvesBeforeTheyAreReady) {
  TestCluster cluster({.prefill = 0, .decode = 0, .worker_flags = {"--profile-at-start=60"}});
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(CountCosts(*status, v1::CostModel::SOURCE_MEASURED), 1) << status->DebugString();
  const v1::CostModel& cost = status->workers(0).load().cost();
  EXPECT_GT(cost.alpha().token_ms(), 0);
  EXPECT_GT(cost.beta().buckets_size(), 0);
}

TEST_F(ProfileCommandTest, RefusesBadFlagsBeforeItMeasures) {
  const auto refused = [](const std::string& flags) {
    const CommandResult result = Shell(fmt::format("{} {} 2>&1", kSmall, flags));
    EXPECT_NE(result.exit_status, 0) << flags;
    EXPECT_THAT(result.output, Not(HasSubstr("kinds of steps"))) << flags;
    return result.output;
  };
  EXPECT_THAT(refused("--out /nowhere/cost.json"),
              HasSubstr("/nowhere/cost.json cannot be written"));
  EXPECT_THAT(refused("--repeats 29"), HasSubstr("--repeats"));
  EXPECT_THAT(refused("--kv-dtype i4"), HasSubstr("--kv-dtype i4 is unknown"));
  EXPECT_THAT(refused("--kv-bytes 1MiB"), HasSubstr("more KV bytes"));
  EXPECT_THAT(refused("--device tpu"), HasSubstr("tpu"));
  EXPECT_THAT(refused("--check " + File("absent.json")), HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace tandem::profile_command_test
