#include "bench/serving/arrivals.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bench/serving/distribution.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::arrivals_test {
namespace {

using ::testing::HasSubstr;

constexpr int kCount = 20000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Seconds between arrivals.
Distribution GapsOf(const ArrivalOptions& options, uint64_t seed) {
  std::vector<double> gaps;
  Duration before{};
  for (const Duration at : MakeArrivals(options, kCount, seed)) {
    gaps.push_back(std::chrono::duration<double>(at - before).count());
    before = at;
  }
  return Distribution(std::move(gaps));
}

// The variance of exponential gaps is the square of their mean, and a gamma distribution of shape k
// divides it by k. The bounds are five standard errors of 20,000 samples.
TEST(ArrivalsTest, GapsHaveTheMeanAndTheVarianceOfTheirGammaDistribution) {
  for (const double burstiness : {0.25, 0.7, 1.0, 4.0}) {
    for (const uint64_t seed : {1, 2, 3}) {
      const Distribution gaps = GapsOf({.rate = 8, .burstiness = burstiness}, seed);
      const double standard_error = 1 / std::sqrt(burstiness * kCount);
      EXPECT_NEAR(gaps.Mean() * 8, 1, 5 * standard_error) << burstiness << " " << seed;
      const double variation = gaps.Deviation() / gaps.Mean();
      const double kurtosis = 3 + 6 / burstiness;
      EXPECT_NEAR(variation * variation * burstiness, 1, 5 * std::sqrt((kurtosis + 1) / kCount))
          << burstiness << " " << seed;
    }
  }
}

// Of a Poisson process, the share of gaps longer than t means is exp(-t).
TEST(ArrivalsTest, APoissonProcessHasExponentialGaps) {
  const Distribution gaps = GapsOf({.rate = 100}, 7);
  for (const double means : {0.1, 1.0, 3.0}) {
    const double share = std::exp(-means);
    EXPECT_NEAR(1 - gaps.ShareUpTo(means / 100), share,
                5 * std::sqrt(share * (1 - share) / kCount));
  }
}

TEST(ArrivalsTest, InfiniteBurstinessIsConstant) {
  const auto arrivals = MakeArrivals({.rate = 50, .burstiness = kInfinity}, 100, 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(arrivals[i].count(), (i + 1) * 20'000'000);
}

TEST(ArrivalsTest, AnInfiniteRateSendsAllAtOnce) {
  for (const Duration at : MakeArrivals({}, 10, 1)) EXPECT_EQ(at.count(), 0);
}

TEST(ArrivalsTest, NormalizedArrivalsEndAtTheCountDividedByTheRate) {
  const auto arrivals = MakeArrivals({.rate = 10, .normalize = true}, 500, 3);
  EXPECT_NEAR(std::chrono::duration<double>(arrivals.back()).count(), 50, 1e-6);
}

TEST(ArrivalsTest, ARampBeginsAndEndsAtItsRates) {
  for (const Ramp ramp : {Ramp::kLinear, Ramp::kExponential}) {
    const auto arrivals = MakeArrivals(
        {.burstiness = kInfinity, .ramp = ramp, .ramp_start = 2, .ramp_end = 32}, 101, 1);
    const auto gap = [&arrivals](int i) {
      return std::chrono::duration<double>(arrivals[i] - (i > 0 ? arrivals[i - 1] : Duration{}))
          .count();
    };
    EXPECT_NEAR(gap(0), 1.0 / 2, 1e-6);
    EXPECT_NEAR(gap(50), ramp == Ramp::kLinear ? 1.0 / 17 : 1.0 / 8, 1e-6);
    EXPECT_NEAR(gap(100), 1.0 / 32, 1e-6);
  }
}

// So that runs at several rates differ by the rate alone.
TEST(ArrivalsTest, TwiceTheRateHalvesEveryGapOfTheSameSeed) {
  const auto slow = MakeArrivals({.rate = 1}, 100, 5);
  const auto fast = MakeArrivals({.rate = 2}, 100, 5);
  for (int i = 0; i < 100; ++i) EXPECT_NEAR(slow[i].count(), 2.0 * fast[i].count(), 2);
}

TEST(ArrivalsTest, RatesThatAreNoneAreRefusedWithTheirValue) {
  for (const double rate : {-1.0, 0.0, std::nan(""), 1e12, -kInfinity}) {
    const absl::Status status = Validate(ArrivalOptions{.rate = rate});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << rate;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--request-rate=")) << rate;
  }
  for (const double burstiness : {-1.0, 0.0, std::nan("")}) {
    const absl::Status status = Validate(ArrivalOptions{.rate = 1, .burstiness = burstiness});
    EXPECT_THAT(std::string(status.message()), HasSubstr("--burstiness="));
  }
  const absl::Status start = Validate(ArrivalOptions{.ramp = Ramp::kLinear, .ramp_end = 5});
  EXPECT_THAT(std::string(start.message()), HasSubstr("--ramp-up-start-rps=0"));
  const absl::Status end =
      Validate(ArrivalOptions{.ramp = Ramp::kLinear, .ramp_start = 5, .ramp_end = kInfinity});
  EXPECT_THAT(std::string(end.message()), HasSubstr("--ramp-up-end-rps=inf"));
  EXPECT_TRUE(Validate(ArrivalOptions{}).ok());
}

}  // namespace
}  // namespace tandem::loadgen::arrivals_test
