#include "bench/simulator/capacity.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::simulator::capacity_test {
namespace {

// A load that needs so many workers of each role, whatever the others do.
auto Needs(FleetSize needed) {
  return [needed](const FleetSize& size) {
    const bool holds = size.unified > 0
                           ? size.unified >= needed.unified
                           : size.prefill >= needed.prefill && size.decode >= needed.decode;
    return CapacityProbe{.size = size, .attainment = {.share = holds ? 0.95 : 0.5}};
  };
}

TEST(CapacityTest, FindsTheFewestWorkersOfEachKind) {
  const CapacityPlan plan = FindCapacity({.unified = 64, .prefill = 32, .decode = 32}, 0.9,
                                         Needs({.unified = 11, .prefill = 3, .decode = 7}));
  ASSERT_TRUE(plan.unified);
  EXPECT_EQ(plan.unified->size, (FleetSize{.unified = 11}));
  ASSERT_TRUE(plan.disaggregated);
  EXPECT_EQ(plan.disaggregated->size, (FleetSize{.prefill = 3, .decode = 7}));
}

TEST(CapacityTest, RunsEachSizeOnceAtMost) {
  const CapacityPlan plan = FindCapacity({.unified = 1000, .prefill = 100, .decode = 100}, 0.9,
                                         Needs({.unified = 700, .prefill = 40, .decode = 9}));
  for (auto probe = plan.probes.begin(); probe != plan.probes.end(); ++probe) {
    EXPECT_EQ(std::find_if(plan.probes.begin(), probe,
                           [&](const CapacityProbe& one) { return one.size == probe->size; }),
              probe)
        << ToText(probe->size);
  }
  EXPECT_LT(plan.probes.size(), 60U);
}

TEST(CapacityTest, TriesAllSplitsOfASumWhereTheRolesDependOnEachOther) {
  // More of one role makes up for less of the other, within limits.
  const auto run = [](const FleetSize& size) {
    const double share = std::min(1.0, (size.prefill * 2 + size.decode) / 12.0) *
                         (size.prefill >= 2 && size.decode >= 2 ? 1 : 0);
    return CapacityProbe{.size = size, .attainment = {.share = share}};
  };
  const CapacityPlan plan = FindCapacity({.prefill = 8, .decode = 8}, 0.95, run);
  ASSERT_TRUE(plan.disaggregated);
  EXPECT_EQ(plan.disaggregated->size, (FleetSize{.prefill = 5, .decode = 2}));
}

TEST(CapacityTest, SaysThatTheMostWorkersAreTooFew) {
  const CapacityPlan plan = FindCapacity({.unified = 8, .prefill = 4, .decode = 4}, 0.9,
                                         Needs({.unified = 9, .prefill = 5, .decode = 1}));
  EXPECT_FALSE(plan.unified);
  EXPECT_FALSE(plan.disaggregated);
}

}  // namespace
}  // namespace tandem::simulator::capacity_test
