#include "bench/cuda_bench.h"

#include "gtest/gtest.h"
#include "tests/simt/simt.h"

// What is asked of GPUs with memory of other rates, on the emulated one.

namespace tandem::cuda_bench_test {
namespace {

constexpr TimeLimits kH200 = {134, 142};  // of 8 x 16k in bf16
constexpr double kBytes = 537e6;

TimeLimits LimitsOn(const char* gpu, double read_tbps) {
  simt::Configure({.name = gpu});
  const auto bench = CudaBench::Open({});
  simt::Configure({});
  EXPECT_TRUE(bench.ok()) << bench.status();
  (*bench)->set_ceilings({.read_tbps = read_tbps});
  return (*bench)->BoundByMemory(kH200, kBytes);
}

TEST(CudaBenchTest, AnH200IsHeldToItsLimitsAtWhateverRate) {
  for (const double read_tbps : {0.0, 3.0, 4.37, 4.6}) {
    const TimeLimits limits = LimitsOn("NVIDIA H200", read_tbps);
    EXPECT_EQ(limits.target_us, 134);
    EXPECT_EQ(limits.fail_above_us, 142);
  }
}

// 537 MB take 179.0 us at 3 TB/s and 122.9 at the 4.37 that the limits are of.
TEST(CudaBenchTest, SlowerMemoryIsAllowedWhatItsBytesTakeLonger) {
  const TimeLimits limits = LimitsOn("NVIDIA H100 80GB HBM3", 3.0);
  EXPECT_NEAR(limits.target_us, 134 + 56.1, 0.1);
  EXPECT_NEAR(limits.fail_above_us, 142 + 56.1, 0.1);
}

TEST(CudaBenchTest, FasterMemoryAndOneThatWasNotMeasuredAreAskedForNoLess) {
  for (const double read_tbps : {0.0, 6.0}) {
    EXPECT_EQ(LimitsOn("NVIDIA B200", read_tbps).target_us, 134);
  }
}

}  // namespace
}  // namespace tandem::cuda_bench_test
