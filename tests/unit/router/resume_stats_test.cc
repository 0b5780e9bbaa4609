#include "router/attempt/resume_stats.h"

#include "gtest/gtest.h"

namespace tandem::resume_stats_test {
namespace {

using std::chrono::milliseconds;

TEST(ResumeStatsTest, NothingHappened) {
  const v1::ResumeUse use = ResumeStats().Use();
  EXPECT_EQ(use.lost() + use.migrated() + use.gave_up(), 0u);
  EXPECT_EQ(use.p99_ms(), 0);
}

TEST(ResumeStatsTest, CountsAndPercentiles) {
  ResumeStats stats;
  for (int i = 0; i < 3; ++i) stats.Count(ResumeCause::kLease);
  for (int i = 0; i < 2; ++i) stats.Count(ResumeCause::kLeaving);
  stats.CountGaveUp();
  for (int i = 100; i >= 1; --i) {
    stats.AddPause(ResumeCause::kLease, milliseconds(i), milliseconds(1000 + i));
  }
  const v1::ResumeUse use = stats.Use();
  EXPECT_EQ(use.lost(), 3u);
  EXPECT_EQ(use.migrated(), 2u);
  EXPECT_EQ(use.gave_up(), 1u);
  EXPECT_DOUBLE_EQ(use.p50_ms(), 50);
  EXPECT_DOUBLE_EQ(use.p99_ms(), 99);
  EXPECT_DOUBLE_EQ(use.max_ms(), 100);
  EXPECT_DOUBLE_EQ(use.waited().p50_ms(), 1050);
  EXPECT_DOUBLE_EQ(use.waited().p99_ms(), 1099);
  EXPECT_DOUBLE_EQ(use.waited().max_ms(), 1100);
}

TEST(ResumeStatsTest, EachCauseHasItsOwnTimes) {
  ResumeStats stats;
  for (int i = 0; i < 3; ++i) {
    stats.Count(ResumeCause::kConnection);
    stats.AddPause(ResumeCause::kConnection, milliseconds(10 + i), {});
  }
  stats.Count(ResumeCause::kNoProgress);
  stats.AddPause(ResumeCause::kNoProgress, milliseconds(4000), {});
  const v1::ResumeUse use = stats.Use();
  EXPECT_EQ(use.lost(), 4u);
  EXPECT_DOUBLE_EQ(use.p99_ms(), 4000);
  ASSERT_EQ(use.causes_size(), 2) << "none that there was not";
  EXPECT_EQ(use.causes(0).cause(), "connection");
  EXPECT_EQ(use.causes(0).resumes(), 3u);
  EXPECT_DOUBLE_EQ(use.causes(0).p50_ms(), 11);
  EXPECT_DOUBLE_EQ(use.causes(0).max_ms(), 12);
  EXPECT_EQ(use.causes(1).cause(), "no_progress");
  EXPECT_DOUBLE_EQ(use.causes(1).p50_ms(), 4000);
}

TEST(ResumeStatsTest, OnlyTheLatestThousandPausesCount) {
  ResumeStats stats;
  for (int i = 0; i < 10; ++i) stats.AddPause(ResumeCause::kConnection, milliseconds(9000), {});
  for (int i = 0; i < 990; ++i) stats.AddPause(ResumeCause::kConnection, milliseconds(1), {});
  EXPECT_DOUBLE_EQ(stats.Use().max_ms(), 9000);
  for (int i = 0; i < 10; ++i) stats.AddPause(ResumeCause::kConnection, milliseconds(2), {});
  EXPECT_DOUBLE_EQ(stats.Use().max_ms(), 2);
}

}  // namespace
}  // namespace tandem::resume_stats_test
