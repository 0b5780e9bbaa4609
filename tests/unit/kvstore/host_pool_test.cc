#include "kvstore/tier/host_pool.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/registry.h"

namespace tandem::host_pool_test {
namespace {

class HostPoolTest : public ::testing::Test {
 protected:
  const Backend backend_ = *OpenBackend("cpu", {.num_threads = 1});
  Device& device_ = *backend_.device;
};

TEST_F(HostPoolTest, AsManySlabsAsTheBudgetHolds) {
  const auto pool = HostPool::Create(device_, 3 * 8192 + 8191, 8192);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->num_slabs(), 3);
  std::vector<HostSlab> slabs;
  for (int i = 0; i < 3; ++i) {
    slabs.push_back(*(*pool)->Take());
    std::ranges::fill(slabs.back().bytes(), static_cast<std::byte>(i + 1));
  }
  EXPECT_FALSE((*pool)->Take().has_value()) << "the budget is hard";
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::all_of(slabs[i].bytes(), [&](std::byte b) {
      return b == static_cast<std::byte>(i + 1);
    })) << "slabs do not overlap";
  }
  EXPECT_EQ((*pool)->CheckInvariants(), absl::OkStatus());
  slabs.pop_back();
  EXPECT_EQ((*pool)->num_free(), 1);
  EXPECT_TRUE((*pool)->Take().has_value());
}

TEST_F(HostPoolTest, ALeaseMovesWithItsSlab) {
  const auto pool = HostPool::Create(device_, 8192, 4096);
  ASSERT_TRUE(pool.ok());
  HostSlab first = *(*pool)->Take();
  const std::byte* data = first.bytes().data();
  HostSlab second = std::move(first);
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ((*pool)->num_free(), 1);
  second = HostSlab();
  EXPECT_EQ((*pool)->num_free(), 2);
}

TEST_F(HostPoolTest, RefusesWhatCannotBe) {
  EXPECT_EQ(HostPool::Create(device_, 4095, 4096).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostPool::Create(device_, -1, 4096).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostPool::Create(device_, int64_t{1} << 50, 4096).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem::host_pool_test
