// `tandem calibrate-kv`, and the workers that read what it writes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
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
#include "tests/support/wrapped_binary.h"

namespace tandem::calibrate_kv_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr size_t kNumLayers = 6;  // of the sample model

// A measurement takes seconds, so all tests look at the file of one, in a copy of the sample model.
class CalibrateKvCommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string directory = ::testing::TempDir() + "calibrateXXXXXX";
    directory_ = mkdtemp(directory.data());
    std::filesystem::copy(SampleModel(), Model());
    Write("short.txt", 12);
    Write("book.txt", 80);
    calibration_ = Calibrate(fmt::format("--input {}", File("book.txt")));
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  void SetUp() override { ASSERT_EQ(calibration_.exit_status, 0) << calibration_.output; }

  static std::string File(const std::string& name) { return directory_ / name; }
  static std::string Model() { return File("model"); }
  static std::string Measured() { return Model() + "/kv_sensitivity.json"; }
  static void Write(const std::string& name, int lines) {
    std::ofstream book(File(name));
    for (int i = 0; i < lines; ++i) {
      book << "It is a truth universally acknowledged, that a single man in possession of " << i
           << " pounds must be in want of a wife.\n";
    }
  }
  static CommandResult Calibrate(const std::string& flags) {
    return Shell(fmt::format("calibrate-kv --model {} --threads 2 {} 2>&1", Model(), flags));
  }
  // A worker that nobody waits for: it must end by itself.
  static CommandResult PrefillWorker() {
    return Shell(fmt::format("worker --role prefill --log-level off --threads 1 --model {} "
                             "--router 127.0.0.1:1 2>&1",
                             Model()),
                 "timeout 60");
  }

  static inline std::filesystem::path directory_;
  static inline CommandResult calibration_;
};

TEST_F(CalibrateKvCommandTest, WritesTheFileIntoTheFolderOfTheModelAndPrintsIt) {
  const Json json = ParseJson(ReadFile(Measured()));
  EXPECT_EQ(json["format"], "tandem-kv-sensitivity");
  for (const char* side : {"k", "v"}) {
    ASSERT_EQ(json[side].size(), kNumLayers) << side;
    for (const Json& number : json[side]) EXPECT_GT(number.get<double>(), 0) << side;
  }
  EXPECT_THAT(calibration_.output, HasSubstr("layer          K          V\n"));
  EXPECT_THAT(calibration_.output, HasSubstr("\n    5  "));
  EXPECT_THAT(calibration_.output, Not(HasSubstr("\n    6  ")));
  EXPECT_THAT(calibration_.output, HasSubstr("written: " + Measured()));
}

TEST_F(CalibrateKvCommandTest, TextsThatAreTooShortMayBeEnoughTogether) {
  const std::string one = "--input " + File("short.txt");
  const CommandResult alone = Calibrate(one + " --out " + File("alone.json"));
  EXPECT_EQ(alone.exit_status, 1);
  EXPECT_THAT(alone.output, testing::ContainsRegex("INVALID_ARGUMENT: .*have [0-9]+ tokens"));
  EXPECT_THAT(alone.output, HasSubstr("and 640 are needed: give a longer text, or several"));
  EXPECT_FALSE(std::filesystem::exists(File("alone.json")));
  const CommandResult both = Calibrate(one + " " + one + " --out " + File("both.json"));
  EXPECT_EQ(both.exit_status, 0) << both.output;
  EXPECT_EQ(ParseJson(ReadFile(File("both.json")))["k"].size(), kNumLayers);
}

TEST_F(CalibrateKvCommandTest, RefusesWhatItCannotDoBeforeItMeasures) {
  const std::string book = "--input " + File("book.txt");
  const auto refused = [](const std::string& flags) {
    const CommandResult result = Calibrate(flags);
    EXPECT_NE(result.exit_status, 0) << flags;
    EXPECT_THAT(result.output, Not(HasSubstr("geometric mean"))) << flags;
    return result.output;
  };
  EXPECT_THAT(refused(""), HasSubstr("--input is required"));
  EXPECT_THAT(refused("--input " + File("absent.txt")), HasSubstr("absent.txt cannot be read"));
  EXPECT_THAT(refused(book + " --out /nowhere/kv.json"),
              HasSubstr("/nowhere/kv.json cannot be written"));
  EXPECT_THAT(refused(book + " --weights int3"), HasSubstr("--weights int3 is unknown"));
  EXPECT_THAT(refused(book + " --device tpu --out " + File("tpu.json")), HasSubstr("tpu"));
}

TEST_F(CalibrateKvCommandTest, APrefillWorkerReadsTheFileAndOthersDoNot) {
  const std::string log = File("log.txt");
  TestCluster cluster({.binary = WrappedBinary("", "2>>" + log),
                       .model = "",
                       .router_flags = {"--model=" + Model()},
                       .worker_flags = {"--model=" + Model()},
                       .log_level = "info"});
  const std::string lines = ReadFile(log);
  const std::string line = fmt::format("kv sensitivity file={} layers={}", Measured(), kNumLayers);
  const size_t at = lines.find(line);
  ASSERT_NE(at, std::string::npos) << lines;
  EXPECT_EQ(lines.find("kv sensitivity", at + line.size()), std::string::npos) << lines;
  const Outcome outcome =
      Ask(cluster.client(), TextRequest("It was a fine morning", v1::ROUTE_DISAGGREGATED, 4));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(CalibrateKvCommandTest, APrefillWorkerRefusesTheFileOfAnotherModel) {
  const std::string own = ReadFile(Measured());
  Json other = ParseJson(own);
  const std::string fingerprint = other["model_fingerprint"];
  other["model_fingerprint"] = "0123456789abcdef";
  std::ofstream(Measured()) << other.dump();
  const CommandResult foreign = PrefillWorker();
  std::ofstream(Measured()) << "{}";
  const CommandResult malformed = PrefillWorker();
  std::ofstream(Measured()) << own;

  EXPECT_EQ(foreign.exit_status, 1);
  EXPECT_THAT(foreign.output,
              HasSubstr(fmt::format("FAILED_PRECONDITION: {}: it was measured with model "
                                    "0123456789abcdef, and here it is {}",
                                    Measured(), fingerprint)));
  EXPECT_EQ(malformed.exit_status, 1);
  EXPECT_THAT(malformed.output,
              HasSubstr("INVALID_ARGUMENT: " + Measured() + ": the field format is missing"));
}

}  // namespace
}  // namespace tandem::calibrate_kv_command_test
