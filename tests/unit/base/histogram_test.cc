#include "base/histogram.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::histogram_test {
namespace {

using ::testing::ElementsAre;

TEST(HistogramTest, AValueOnABoundCountsInTheBucketThatEndsThere) {
  Histogram histogram({1, 2.5});
  for (const double value : {0.5, 1.0, 1.001, 2.5, 2.6}) histogram.Observe(value);
  const HistogramState state = histogram.state();
  EXPECT_THAT(state.counts, ElementsAre(2, 2, 1));
  EXPECT_DOUBLE_EQ(state.sum, 7.601);
}

TEST(HistogramTest, BoundsAreSortedAndEachIsThereOnce) {
  const Histogram histogram({2, 0.3, 2, 1});
  EXPECT_THAT(histogram.state().bounds, ElementsAre(0.3, 1, 2));
  EXPECT_THAT(histogram.state().counts, ElementsAre(0, 0, 0, 0));
}

TEST(HistogramTest, OneCallCanCountSeveralEqualValues) {
  Histogram histogram({1});
  histogram.Observe(0.25, 4);
  EXPECT_THAT(histogram.state().counts, ElementsAre(4, 0));
  EXPECT_DOUBLE_EQ(histogram.state().sum, 1);
}

TEST(HistogramTest, EachBucketKeepsTheLatestValueThatHasAName) {
  Histogram histogram({1});
  const TimePoint now = TimePoint() + std::chrono::seconds(7);
  histogram.Observe(0.5, "a", now);
  histogram.Observe(0.25, "b", now + std::chrono::seconds(1));
  histogram.Observe(3, 1);  // without a name
  const HistogramState state = histogram.state();
  EXPECT_THAT(state.counts, ElementsAre(2, 1));
  EXPECT_EQ(state.latest[0].id, "b");
  EXPECT_EQ(state.latest[0].value, 0.25);
  EXPECT_EQ(state.latest[0].when, now + std::chrono::seconds(1));
  EXPECT_EQ(state.latest[1].id, "");
}

TEST(HistogramTest, NothingIsLostWhenThreadsCountAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 10'000;
  Histogram histogram({1});
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&histogram] {
      for (int j = 0; j < kEach; ++j) histogram.Observe(0.5, "x", TimePoint());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(histogram.state().counts, ElementsAre(kThreads * kEach, 0));
  EXPECT_DOUBLE_EQ(histogram.state().sum, 0.5 * kThreads * kEach);
}

}  // namespace
}  // namespace tandem::histogram_test
