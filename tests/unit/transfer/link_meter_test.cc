// The pure parts that handle rates: LinkMeter measures them and SendRate limits them.
#include "gtest/gtest.h"
#include "transfer/framed/links.h"
#include "transfer/framed/send_rate.h"

namespace tandem::link_meter_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr TimePoint kStart = TimePoint() + std::chrono::hours(1);

// A link that is told of its answers, on a clock of its own.
class LinkMeterTest : public ::testing::Test {
 protected:
  // `bytes` arrived `after` the answer before, `left` are still on their way.
  void Arrive(Duration after, uint64_t bytes, uint64_t left) {
    now_ += after;
    meter_.Arrived(now_, bytes, left);
  }
  // Kept full for `windows` of kWindowBytes, in `each`.
  void Fill(size_t windows, Duration each) {
    constexpr size_t kAnswers = 8;
    constexpr uint64_t kBytes = LinkMeter::kWindowBytes / kAnswers;
    Arrive(milliseconds(1), kBytes, kBytes);  // says nothing
    for (size_t i = 0; i < windows * kAnswers; ++i) Arrive(each / kAnswers, kBytes, kBytes);
    meter_.Interrupted();
    Arrive(milliseconds(1), 1, 0);  // what is over counts with the next answer
  }

  LinkMeter meter_;
  TimePoint now_ = kStart;
};

TEST_F(LinkMeterTest, CountsTheTimeBetweenAnswersOfALinkThatWasFull) {
  EXPECT_EQ(meter_.bytes_per_second(), 0);
  Fill(1, milliseconds(2));
  EXPECT_NEAR(meter_.bytes_per_second(), 2e9, 1e3);
  Fill(LinkMeter::kWindowsOfFastest - 2, milliseconds(2));
  EXPECT_EQ(meter_.fastest_bytes_per_second(), 0) << "too few windows";
  Fill(1, milliseconds(2));
  EXPECT_NEAR(meter_.fastest_bytes_per_second(), 2e9, 1e3);
}

// As a prefill sends its layers: 1.25 MB each, of which the first fifth comes after a wait for a
// core that is hundreds of times as long as the bytes take.
TEST_F(LinkMeterTest, WaitsBeforeTheFirstAnswerOfABurstDoNotCount) {
  for (int burst = 0; burst < 100; ++burst) {
    Arrive(milliseconds(50), 250'000, 1'000'000);
    Arrive(microseconds(50), 500'000, 500'000);
    Arrive(microseconds(50), 500'000, 0);
  }
  EXPECT_NEAR(meter_.bytes_per_second(), 10e9, 1e3);
}

TEST_F(LinkMeterTest, ABurstThatIsAnsweredAtOnceSaysNothing) {
  for (int burst = 0; burst < 1000; ++burst) Arrive(milliseconds(50), 1'000'000, 0);
  EXPECT_EQ(meter_.bytes_per_second(), 0);
}

// A burst that began when all before it had arrived, but for the answer: between the two the link
// may have had nothing to do.
TEST_F(LinkMeterTest, WhatWasNotOnItsWayAtTheAnswerBeforeSaysNothing) {
  for (int burst = 0; burst < 1000; ++burst) Arrive(milliseconds(50), 1'000'000, 999'999);
  EXPECT_EQ(meter_.bytes_per_second(), 0);
}

// The sender's thread slept meanwhile: that they came one behind the other says nothing.
TEST_F(LinkMeterTest, AnswersThatWereReadTogetherSayNothing) {
  for (int burst = 0; burst < 1000; ++burst) {
    Arrive(milliseconds(50), 500'000, 1'000'000);
    Arrive(microseconds(1), 500'000, 500'000);
    Arrive(microseconds(1), 500'000, 0);
  }
  EXPECT_EQ(meter_.bytes_per_second(), 0);
}

// Likewise in the middle of a burst: the megabytes that came in no time are part of those before.
TEST_F(LinkMeterTest, AnswersThatWereReadTogetherAreOne) {
  constexpr uint64_t kBytes = LinkMeter::kPartBytes;
  constexpr uint64_t kLeft = 1'000 * kBytes;
  for (int i = 0; i < 100; ++i) {
    Arrive(milliseconds(4), kBytes, kLeft);
    for (int j = 0; j < 3; ++j) Arrive(microseconds(1), kBytes, kLeft);
  }
  EXPECT_NEAR(meter_.fastest_bytes_per_second(), 1e9, 1e6);
  EXPECT_NEAR(meter_.bytes_per_second(), 1e9, 1e6);
}

TEST_F(LinkMeterTest, AProcessThatStandsStillOnceSpoilsAQuarter) {
  Fill(10, milliseconds(2));
  Arrive(milliseconds(1), 100'000, 100'000);
  Arrive(std::chrono::seconds(10), 100'000, 0);
  EXPECT_GT(meter_.bytes_per_second(), 0.74 * 2e9);
  Fill(20, milliseconds(2));
  EXPECT_GT(meter_.bytes_per_second(), 0.99 * 2e9);
}

// Three of four answers come 10 ms late: the mean is a tenth, the link as fast as ever.
TEST_F(LinkMeterTest, ThreadsThatWaitForACoreAreNoSlowLink) {
  constexpr uint64_t kBytes = LinkMeter::kPartBytes;
  Arrive(milliseconds(1), kBytes, kBytes);
  for (int i = 0; i < 100; ++i) Arrive(microseconds(i % 4 == 0 ? 500 : 10'500), kBytes, kBytes);
  EXPECT_LT(meter_.bytes_per_second(), 0.25 * 2e9);
  EXPECT_NEAR(meter_.fastest_bytes_per_second(), 2e9, 1e3);
  for (size_t i = 0; i < 5 * LinkMeter::kWindowsOfFastest; ++i)
    Arrive(milliseconds(11), kBytes, kBytes);
  EXPECT_LT(meter_.fastest_bytes_per_second(), 0.25 * 2e9) << "none of late";
}

TEST_F(LinkMeterTest, ASlowLinkShowsAfterSecondsHoweverSmallItsBursts) {
  Fill(10, milliseconds(2));
  for (int burst = 0; burst < 40; ++burst) {  // at 100 kB/s, 3 s of it counted
    Arrive(milliseconds(200), 2'500, 7'500);
    for (const uint64_t left : {5'000, 2'500, 0}) Arrive(milliseconds(25), 2'500, left);
  }
  EXPECT_LT(meter_.bytes_per_second(), 0.25 * 2e9);
  for (int i = 0; i < 1000; ++i) Arrive(milliseconds(25), 2'500, 1'000'000);
  EXPECT_NEAR(meter_.bytes_per_second(), 1e5, 2e3);
  EXPECT_NEAR(meter_.fastest_bytes_per_second(), 1e5, 2e3);
}

TEST_F(LinkMeterTest, WhatWasLostSaysNothing) {
  for (int i = 0; i < 1000; ++i) {
    Arrive(milliseconds(50), 1'000'000, 1'000'000);
    meter_.Interrupted();
  }
  EXPECT_EQ(meter_.bytes_per_second(), 0);
}

constexpr Duration kBurst = milliseconds(10);

TEST(SendRateTest, NoBound) {
  SendRate bucket(0, kBurst);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(bucket.Take(kStart, 1 << 30));
  EXPECT_EQ(bucket.ready_at(kStart), kStart);
}

TEST(SendRateTest, KeepsTheRateOverTime) {
  SendRate bucket(1'000'000, kBurst);
  TimePoint now = kStart;
  uint64_t taken = 0;
  while (now < kStart + std::chrono::seconds(10)) {
    if (bucket.Take(now, 3000)) taken += 3000;
    now = std::max(now + std::chrono::microseconds(100), bucket.ready_at(now));
  }
  EXPECT_NEAR(static_cast<double>(taken), 10e6, 20e3);
}

TEST(SendRateTest, ALargeFrameIsPaidForAfterwards) {
  SendRate bucket(1'000'000, kBurst);  // holds 10,000
  EXPECT_TRUE(bucket.Take(kStart, 1'010'000));
  EXPECT_FALSE(bucket.Take(kStart, 1));
  const TimePoint ready = bucket.ready_at(kStart);
  EXPECT_NEAR(std::chrono::duration<double>(ready - kStart).count(), 1.0, 1e-6);
  EXPECT_FALSE(bucket.Take(ready - milliseconds(1), 1));
  EXPECT_TRUE(bucket.Take(ready, 1));
}

TEST(SendRateTest, APauseSavesNoMoreThanTheBucketHolds) {
  SendRate bucket(1'000'000, kBurst);
  EXPECT_TRUE(bucket.Take(kStart, 10'000));
  const TimePoint later = kStart + std::chrono::hours(1);
  EXPECT_TRUE(bucket.Take(later, 10'000));
  EXPECT_TRUE(bucket.Take(later, 10'000)) << "what is not owed may be begun";
  EXPECT_FALSE(bucket.Take(later, 1));
}

TEST(SendRateTest, ASmallerBurstSavesLess) {
  SendRate bucket(1'000'000, milliseconds(1));
  EXPECT_TRUE(bucket.Take(kStart, 1'000));
  const TimePoint later = kStart + std::chrono::hours(1);
  EXPECT_TRUE(bucket.Take(later, 1'000));
  EXPECT_TRUE(bucket.Take(later, 1'000)) << "what is not owed may be begun";
  EXPECT_FALSE(bucket.Take(later, 1));
}

}  // namespace
}  // namespace tandem::link_meter_test
