#include "scheduler/expected_output.h"

#include "gtest/gtest.h"

namespace tandem::expected_output_test {
namespace {

TEST(ExpectedOutputTest, ExpectsTheAllowedLengthBeforeAnyOutputEnded) {
  const ExpectedOutput expected;
  EXPECT_EQ(expected.Remaining(0, 100), 100);
  EXPECT_EQ(expected.Remaining(40, 100), 60);
  EXPECT_EQ(expected.Remaining(100, 100), 0);
}

TEST(ExpectedOutputTest, FollowsTheOutputsThatEnd) {
  ExpectedOutput expected;
  for (int i = 0; i < 1000; ++i) expected.Observe(25, 100);
  EXPECT_NEAR(expected.Remaining(0, 100), 25, 4);
  EXPECT_NEAR(expected.Remaining(0, 400), 100, 13) << "fractions of the allowed length count";
  for (int i = 0; i < 1000; ++i) expected.Observe(75, 100);
  EXPECT_NEAR(expected.Remaining(0, 100), 75, 4);
}

TEST(ExpectedOutputTest, AnOutputIsExpectedToEndLikeOthersThatBecameAsLong) {
  ExpectedOutput expected;
  for (int i = 0; i < 1000; ++i) expected.Observe(i % 2 == 0 ? 10 : 90, 100);
  EXPECT_NEAR(expected.Remaining(0, 100), 50, 4);
  EXPECT_NEAR(expected.Remaining(20, 100), 70, 4);
  EXPECT_EQ(expected.Remaining(95, 100), 5) << "no output became so long";
}

TEST(ExpectedOutputTest, AShortOutputThatWasCutOffIsNotTakenForOneThatEndedEarly) {
  ExpectedOutput expected;
  for (int32_t allowed = 1; allowed < 40; ++allowed) expected.Observe(allowed, allowed);
  EXPECT_EQ(expected.Remaining(0, 1000), 1000);
}

}  // namespace
}  // namespace tandem::expected_output_test
