#include "bench/verdict.h"

#include <limits>

#include "gtest/gtest.h"

namespace tandem::verdict_test {
namespace {

TEST(VerdictTest, LimitsThemselvesAreKept) {
  constexpr TimeLimits kLimits = {.target_us = 134, .fail_above_us = 142};
  EXPECT_EQ(Verdict(1, kLimits), "met");
  EXPECT_EQ(Verdict(134, kLimits), "met");
  EXPECT_EQ(Verdict(134.001, kLimits), "near");
  EXPECT_EQ(Verdict(142, kLimits), "near");
  EXPECT_EQ(Verdict(142.001, kLimits), "missed");
}

TEST(VerdictTest, NothingIsNearASingleLimit) {
  constexpr TimeLimits kLimits = {.target_us = 4, .fail_above_us = 4};
  EXPECT_EQ(Verdict(4, kLimits), "met");
  EXPECT_EQ(Verdict(4.001, kLimits), "missed");
}

TEST(VerdictTest, WhatWasNotMeasuredIsMissed) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Verdict(kNone, {.target_us = 4, .fail_above_us = 5}), "missed");
}

}  // namespace
}  // namespace tandem::verdict_test
