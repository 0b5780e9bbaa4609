#include "server/assembly/host_memory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::host_memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMegabyte = 1'000'000;

// A file system of the few files that are read.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() : root_(testing::TempDir() + "/host_memory_" + std::to_string(getpid())) {}
  ~HostMemoryTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  int64_t Limit() const { return HostMemoryLimit(root_.string()); }

  const std::filesystem::path root_;
};

TEST_F(HostMemoryTest, WithoutACgroupItIsTheMachines) {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_EQ(Limit(), machine);
  Write("proc/self/cgroup", "0::/");
  EXPECT_EQ(Limit(), machine) << "the root has no limit";
  Write("proc/self/cgroup", "0::/kept/by/itself");
  Write("sys/fs/cgroup/kept/by/itself/memory.max", "max");
  EXPECT_EQ(Limit(), machine);
}

TEST_F(HostMemoryTest, TheLeastOfACgroupAndThoseAboveItCounts) {
  Write("proc/self/cgroup", "0::/pod/container");
  Write("sys/fs/cgroup/pod/container/memory.max", "300000000");
  EXPECT_EQ(Limit(), 300 * kMegabyte);
  Write("sys/fs/cgroup/pod/memory.max", "200000000");
  EXPECT_EQ(Limit(), 200 * kMegabyte);
  Write("sys/fs/cgroup/pod/container/memory.max", "max");
  EXPECT_EQ(Limit(), 200 * kMegabyte);
}

TEST_F(HostMemoryTest, AContainerSeesItsOwnAsTheTop) {
  Write("proc/self/cgroup", "0::/../../of/the/host");
  Write("sys/fs/cgroup/memory.max", "100000000");
  EXPECT_EQ(Limit(), 100 * kMegabyte);
}

TEST_F(HostMemoryTest, VersionOneHasAFolderForEachController) {
  Write("proc/self/cgroup", "11:cpu,cpuacct:/a\n4:memory:/a/b\n0::/a");
  Write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "400000000");
  EXPECT_EQ(Limit(), 400 * kMegabyte);
}

TEST_F(HostMemoryTest, WhatDoesNotFitIsRefusedWithEachPart) {
  const HostMemoryUse use = {.weights = 1000 * kMegabyte,
                             .kv_pool = 2000 * kMegabyte,
                             .host_tier = 500 * kMegabyte,
                             .transfers = 250 * kMegabyte};
  EXPECT_EQ(CheckFits(use, 3750 * kMegabyte), absl::OkStatus());
  const absl::Status status = CheckFits(use, 3749 * kMegabyte);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("3.75 GB"), HasSubstr("weights 1.00"), HasSubstr("KV pool 2.00"),
                    HasSubstr("host tier 0.50"), HasSubstr("transfers 0.25"),
                    HasSubstr("--kv-buffer-bytes")));
}

}  // namespace
}  // namespace tandem::host_memory_test
