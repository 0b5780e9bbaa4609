// What a worker has taken of a GPU's memory once it listens, on the emulated one, and what it says
// where that memory cannot be shared.

#include <memory>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/kv_layout.h"
#include "server/assembly/worker.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/simt/simt.h"
#include "tests/support/tree.h"

namespace tandem::device_memory_test {
namespace {

constexpr double kFraction = 0.3;

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(Role role, const std::string& transport) {
  WorkerOptions options = {.role = role,
                           .name = "it",
                           .model_dir = SampleModel(),
                           .model_name = "sample",
                           .routers = {"127.0.0.1:1"}};
  options.tuning.device = "cuda:0";
  options.tuning.device_memory_fraction = kFraction;
  options.tuning.transfer.transport = transport;
  return Worker::Start(options);
}

class DeviceMemoryTest : public testing::TestWithParam<std::string> {
 protected:
  // Of its share of the memory, what a worker leaves once it listens; below zero: it takes more.
  static double BytesLeft(Role role, const std::string& transport) {
    const auto worker = StartWorker(role, transport);
    EXPECT_TRUE(worker.ok()) << worker.status();
    const DeviceMemory memory = *OpenBackend("cuda:0", {})->device->Memory();
    return kFraction * static_cast<double>(memory.total_bytes) -
           static_cast<double>(memory.own_bytes);
  }
};

// Buffers of transfers are part of the share, and all of it is used: what is set aside for them is
// what they take, to less than one block of KV.
TEST_P(DeviceMemoryTest, AWorkerTakesItsShareAndNoMore) {
  const KvLayout layout = {.num_layers = 6, .num_kv_heads = 2, .head_dim = 64, .block_tokens = 16};
  for (const Role role : {Role::kPrefill, Role::kDecode, Role::kUnified}) {
    const double left = BytesLeft(role, GetParam());
    EXPECT_GE(left, 0) << static_cast<int>(role);
    EXPECT_LT(left, static_cast<double>(layout.BlockBytes())) << static_cast<int>(role);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceMemoryTest,
                         testing::Values("auto", "ipc", "nccl", "shm,tcp"),
                         [](const auto& info) { return info.param.substr(0, 3); });

// What warnings and errors of the log say while it exists.
class Warnings {
 public:
  Warnings() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    auto logger = std::make_shared<spdlog::logger>("warnings", std::move(sink));
    logger->set_level(spdlog::level::warn);
    spdlog::set_default_logger(std::move(logger));
  }
  ~Warnings() { spdlog::set_default_logger(before_); }

  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

TEST(UnsharedDeviceTest, IpcIsLeftOutWithAWarningOrRefusedWhereItIsNamed) {
  simt::Configure({.no_file_handles = true, .no_ipc = true});
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    const Warnings warnings;
    EXPECT_TRUE(StartWorker(role, "auto").ok());
    EXPECT_THAT(warnings.text(), testing::HasSubstr("transport=ipc left out reason="));
    EXPECT_THAT(warnings.text(), testing::HasSubstr("memory of cuda:0"));
  }
  EXPECT_EQ(StartWorker(Role::kDecode, "ipc").status().code(),
            absl::StatusCode::kFailedPrecondition);
  simt::Configure({});
}

}  // namespace
}  // namespace tandem::device_memory_test
