// The two pure parts that know of rates: one measures, one bounds.
#include "transfer/link_meter.h"

#include "gtest/gtest.h"
#include "transfer/token_bucket.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kStart = TimePoint() + std::chrono::hours(1);

TEST(LinkMeterTest, CountsOnlyTheTimeInWhichSomethingWasUnderWay) {
  LinkMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.Began(kStart);
  meter.Arrived(kStart + milliseconds(10), 1'000'000, /*idle=*/true);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e8);
  meter.Began(kStart + std::chrono::seconds(100));
  meter.Began(kStart + std::chrono::seconds(105));  // is under way already
  meter.Arrived(kStart + std::chrono::seconds(100) + milliseconds(10), 1'000'000, /*idle=*/true);
  EXPECT_NEAR(meter.bytes_per_second(), 1e8, 1);
}

TEST(LinkMeterTest, TheLatestBytesCount) {
  LinkMeter meter;
  TimePoint now = kStart;
  meter.Began(now);
  const auto send = [&](int megabytes, int milliseconds_each) {
    for (int i = 0; i < megabytes; ++i) {
      meter.Arrived(now += milliseconds(milliseconds_each), 1'000'000, /*idle=*/false);
    }
  };
  send(640, 1);
  EXPECT_NEAR(meter.bytes_per_second(), 1e9, 1e3);
  send(64, 4);  // one window at a quarter of the rate: its share of the time is 1 - 1/e
  EXPECT_NEAR(meter.bytes_per_second(), 1e9 / (4 - 3 / 2.718281828), 1e7);
  send(640, 4);
  EXPECT_NEAR(meter.bytes_per_second(), 2.5e8, 1e5);
}

TEST(LinkMeterTest, WhatWasLostSaysNothing) {
  LinkMeter meter;
  meter.Began(kStart);
  meter.Lost();
  meter.Arrived(kStart + milliseconds(500), 1'000'000, /*idle=*/false);
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

TEST(TokenBucketTest, NoBound) {
  TokenBucket bucket(0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(bucket.Take(kStart, 1 << 30));
  EXPECT_EQ(bucket.ready_at(kStart), kStart);
}

TEST(TokenBucketTest, KeepsTheRateOverTime) {
  TokenBucket bucket(1'000'000);
  TimePoint now = kStart;
  uint64_t taken = 0;
  while (now < kStart + std::chrono::seconds(10)) {
    if (bucket.Take(now, 3000)) taken += 3000;
    now = std::max(now + std::chrono::microseconds(100), bucket.ready_at(now));
  }
  EXPECT_NEAR(static_cast<double>(taken), 10e6, 20e3);
}

TEST(TokenBucketTest, ALargeFrameIsPaidForAfterwards) {
  TokenBucket bucket(1'000'000);  // holds 10,000
  EXPECT_TRUE(bucket.Take(kStart, 1'010'000));
  EXPECT_FALSE(bucket.Take(kStart, 1));
  const TimePoint ready = bucket.ready_at(kStart);
  EXPECT_NEAR(std::chrono::duration<double>(ready - kStart).count(), 1.0, 1e-6);
  EXPECT_FALSE(bucket.Take(ready - milliseconds(1), 1));
  EXPECT_TRUE(bucket.Take(ready, 1));
}

TEST(TokenBucketTest, APauseSavesNoMoreThanTheBucketHolds) {
  TokenBucket bucket(1'000'000);
  EXPECT_TRUE(bucket.Take(kStart, 10'000));
  const TimePoint later = kStart + std::chrono::hours(1);
  EXPECT_TRUE(bucket.Take(later, 10'000));
  EXPECT_TRUE(bucket.Take(later, 10'000)) << "what is not owed may be begun";
  EXPECT_FALSE(bucket.Take(later, 1));
}

}  // namespace
}  // namespace tandem
