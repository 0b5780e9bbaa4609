// A worker whose weights are not those of the others does not serve beside them.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/commands/child_process.h"
#include "tests/support/read_file.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"
#include "tests/support/wrapped_binary.h"

namespace tandem::weights_hash_test {
namespace {

using ::testing::HasSubstr;

// Waits until a process that writes its log to this file has logged the text.
void ExpectLogged(const std::filesystem::path& log, const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while ((!std::filesystem::exists(log) || ReadFile(log).find(text) == std::string::npos) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(ReadFile(log), HasSubstr(text));
}

// Zeros in a twentieth of each large tensor, where no sample of the fingerprint lies.
void Damage(const std::filesystem::path& safetensors) {
  std::fstream file(safetensors, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  int damaged = 0;
  const nlohmann::json tensors = ParseJson(header);
  for (const auto& [name, tensor] : tensors.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = tensor["data_offsets"][0];
    const uint64_t size = tensor["data_offsets"][1].get<uint64_t>() - begin;
    if (size < 65536) continue;
    file.seekp(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + begin + size / 4));
    const std::string zeros(size / 20, '\0');
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
    ++damaged;
  }
  ASSERT_GT(damaged, 0);
}

class WeightsHashTest : public testing::Test {
 protected:
  WeightsHashTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                fmt::format("tandem_weights_{}", getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::copy(SampleModel(), folder_ / "model",
                          std::filesystem::copy_options::recursive);
  }
  ~WeightsHashTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(WeightsHashTest, AWorkerWithZerosInATwentiethOfItsTensorsIsRefusedOnceItHasLoadedThem) {
  ASSERT_NO_FATAL_FAILURE(Damage(folder_ / "model" / "model.safetensors"));
  TestCluster cluster({.prefill = 0, .decode = 0});
  const std::string log = folder_ / "log";
  auto damaged = ChildProcess::Start(
      {"worker", "--role=unified", "--name=damaged", "--threads=1", "--router=" + cluster.address(),
       "--model=" + (folder_ / "model").string(), "--model-name=sample", "--log-level=warn"},
      WrappedBinary("", "2>" + log));
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  const std::string refused = "the weights that damaged loaded differ from those of unified-0";
  ExpectLogged(log, refused);
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(FindWorker(*status, "damaged"), nullptr);
  EXPECT_NE(FindWorker(*status, "unified-0"), nullptr);
  damaged->Signal(SIGKILL);
  waitpid(damaged->pid(), nullptr, 0);
}

TEST_F(WeightsHashTest, AWorkerThatKeepsItsWeightsOtherwiseIsRefusedWithTheFlagToChange) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  const std::string log = folder_ / "log";
  auto other = ChildProcess::Start(
      {"worker", "--role=unified", "--name=other", "--threads=1", "--router=" + cluster.address(),
       "--model=" + SampleModel(), "--weights=int8", "--log-level=warn"},
      WrappedBinary("", "2>" + log));
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string refused = "keep them differently (--weights)";
  ExpectLogged(log, refused);
  other->Signal(SIGKILL);
  waitpid(other->pid(), nullptr, 0);
}

TEST_F(WeightsHashTest, AWorkerWithACopyOfTheSameWeightsServesBesideTheOthers) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  auto copy = ChildProcess::Start(
      {"worker", "--role=unified", "--name=copy", "--threads=1", "--router=" + cluster.address(),
       "--model=" + (folder_ / "model").string(), "--model-name=sample", "--log-level=error"},
      DaemonBinary());
  ASSERT_TRUE(copy.ok()) << copy.status();
  cluster.WaitFor("both have started", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* worker = FindWorker(status, "copy");
    return worker != nullptr && !worker->load().starting() &&
           FindWorker(status, "unified-0") != nullptr;
  });
  copy->Signal(SIGKILL);
  waitpid(copy->pid(), nullptr, 0);
}

}  // namespace
}  // namespace tandem::weights_hash_test
