#include "bench/serving/distribution.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/serving/random.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::distribution_test {
namespace {

// By the definition, without sorting: the value at a rank is the smallest sample that enough others
// do not exceed.
double SampleAtRank(const std::vector<double>& samples, size_t rank) {
  for (const double candidate : samples) {
    size_t below = 0;
    size_t equal = 0;
    for (const double other : samples) {
      if (other < candidate) ++below;
      if (other == candidate) ++equal;
    }
    if (below <= rank && rank < below + equal) return candidate;
  }
  ADD_FAILURE() << "no sample has rank " << rank;
  return 0;
}

double BruteForcePercentile(const std::vector<double>& samples, double percent) {
  const double rank = percent / 100 * static_cast<double>(samples.size() - 1);
  const double low = SampleAtRank(samples, static_cast<size_t>(std::floor(rank)));
  const double high = SampleAtRank(samples, static_cast<size_t>(std::ceil(rank)));
  return low + (high - low) * (rank - std::floor(rank));
}

TEST(DistributionTest, PercentilesAreThoseOfBruteForce) {
  RandomStream random(3);
  for (const int count : {1, 2, 3, 10, 99, 100, 101, 257}) {
    std::vector<double> samples;
    for (int i = 0; i < count; ++i) {
      // Some samples are equal.
      samples.push_back(std::floor(random.GammaOfMeanOne(0.5) * 50));
    }
    const Distribution distribution(samples);
    for (const double percent : {0.0, 0.1, 25.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0}) {
      EXPECT_NEAR(distribution.Percentile(percent), BruteForcePercentile(samples, percent), 1e-9)
          << count << " samples, percentile " << percent;
    }
    EXPECT_EQ(distribution.Max(), *std::max_element(samples.begin(), samples.end()));
  }
}

TEST(DistributionTest, MeanDeviationAndSharesAreExact) {
  const Distribution distribution({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(distribution.Mean(), 2.5);
  EXPECT_DOUBLE_EQ(distribution.Deviation(), std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(distribution.Median(), 2.5);
  EXPECT_DOUBLE_EQ(distribution.ShareUpTo(3), 0.75);
  EXPECT_DOUBLE_EQ(distribution.ShareUpTo(0.5), 0);
}

TEST(DistributionTest, WithoutSamplesEverythingIsZero) {
  const Distribution none;
  EXPECT_EQ(none.Mean(), 0);
  EXPECT_EQ(none.Percentile(99), 0);
  EXPECT_EQ(none.Max(), 0);
  EXPECT_EQ(none.ShareUpTo(1), 0);
}

// Values of the published example: 9 of 10, interval 0.5958 to 0.9821.
TEST(DistributionTest, WilsonsIntervalHoldsTheShareAndStaysWithinZeroAndOne) {
  const ShareInterval nine = WilsonInterval(9, 10);
  EXPECT_DOUBLE_EQ(nine.share, 0.9);
  EXPECT_NEAR(nine.low, 0.5958, 1e-4);
  EXPECT_NEAR(nine.high, 0.9821, 1e-4);
  EXPECT_DOUBLE_EQ(WilsonInterval(10, 10).high, 1);
  EXPECT_NEAR(WilsonInterval(0, 10).low, 0, 1e-12);
  EXPECT_EQ(WilsonInterval(0, 0).high, 1);
}

}  // namespace
}  // namespace tandem::loadgen::distribution_test
