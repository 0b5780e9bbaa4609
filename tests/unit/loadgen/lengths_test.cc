#include "bench/serving/lengths.h"

#include <cmath>
#include <string>
#include <vector>

#include "bench/serving/distribution.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::lengths_test {
namespace {

using ::testing::HasSubstr;

Distribution Draws(const std::string& text, int count = 20000) {
  const auto lengths = ParseLength("--input-len", text);
  EXPECT_TRUE(lengths.ok()) << lengths.status();
  RandomStream random(11);
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) samples.push_back(lengths->Draw(random));
  return Distribution(std::move(samples));
}

TEST(LengthsTest, AFixedLengthIsAlwaysTheSame) {
  EXPECT_EQ(Draws("128").Percentile(0), 128);
  EXPECT_EQ(Draws("128").Max(), 128);
}

TEST(LengthsTest, AUniformLengthReachesBothEndsEquallyOften) {
  const Distribution draws = Draws("uniform:10,13");
  EXPECT_EQ(draws.Percentile(0), 10);
  EXPECT_EQ(draws.Max(), 13);
  for (int length = 10; length <= 13; ++length) {
    EXPECT_NEAR(draws.ShareUpTo(length) - draws.ShareUpTo(length - 1), 0.25, 0.016);
  }
}

TEST(LengthsTest, ALogNormalLengthHasItsMedianAndItsSpread) {
  const Distribution draws = Draws("lognormal:1000,0.5");
  EXPECT_NEAR(draws.Median(), 1000, 25);
  // One standard deviation of the logarithm lies above the median at 84.13%.
  EXPECT_NEAR(draws.Percentile(84.134), 1000 * std::exp(0.5), 60);
}

TEST(LengthsTest, NoLengthExceedsItsLimit) {
  auto lengths = ParseLength("--input-len", "lognormal:1000,2");
  lengths->limit = 1500;
  RandomStream random(1);
  for (int i = 0; i < 1000; ++i) {
    const int32_t drawn = lengths->Draw(random);
    EXPECT_GE(drawn, 1);
    EXPECT_LE(drawn, 1500);
  }
}

TEST(LengthsTest, ARangeRatioSpreadsFixedLengths) {
  const auto spread = SpreadLength(*ParseLength("--input-len", "100"), 0.2);
  ASSERT_TRUE(spread.ok());
  EXPECT_EQ(spread->low, 80);
  EXPECT_EQ(spread->high, 120);
  EXPECT_FALSE(SpreadLength(*ParseLength("--input-len", "uniform:1,2"), 0.2).ok());
  for (const double ratio : {-0.1, 1.0, std::nan("")}) {
    EXPECT_FALSE(SpreadLength(*ParseLength("--input-len", "100"), ratio).ok()) << ratio;
  }
}

TEST(LengthsTest, WhatIsNoLengthIsRefusedWithWhatMayBeGiven) {
  for (const std::string text :
       {"", "0", "-5", "many", "nan", "1e9", "uniform:5", "uniform:5,4", "uniform:0,4",
        "lognormal:100", "lognormal:0,1", "lognormal:100,-1", "lognormal:nan,1", "normal:5,1"}) {
    const auto lengths = ParseLength("--output-len", text);
    ASSERT_FALSE(lengths.ok()) << text;
    EXPECT_THAT(std::string(lengths.status().message()), HasSubstr("--output-len=" + text));
    EXPECT_THAT(std::string(lengths.status().message()), HasSubstr("uniform:LOW,HIGH"));
  }
}

}  // namespace
}  // namespace tandem::loadgen::lengths_test
