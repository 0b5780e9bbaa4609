#include "router/resume_stats.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

TEST(ResumeStatsTest, NothingHappened) {
  const v1::ResumeUse use = ResumeStats().Use();
  EXPECT_EQ(use.lost() + use.migrated() + use.gave_up(), 0u);
  EXPECT_EQ(use.p99_ms(), 0);
}

TEST(ResumeStatsTest, CountsAndPercentiles) {
  ResumeStats stats;
  for (int i = 0; i < 3; ++i) stats.CountLost();
  for (int i = 0; i < 2; ++i) stats.CountMigrated();
  stats.CountGaveUp();
  for (int i = 100; i >= 1; --i) stats.AddPause(milliseconds(i));
  const v1::ResumeUse use = stats.Use();
  EXPECT_EQ(use.lost(), 3u);
  EXPECT_EQ(use.migrated(), 2u);
  EXPECT_EQ(use.gave_up(), 1u);
  EXPECT_DOUBLE_EQ(use.p50_ms(), 50);
  EXPECT_DOUBLE_EQ(use.p99_ms(), 99);
  EXPECT_DOUBLE_EQ(use.max_ms(), 100);
}

TEST(ResumeStatsTest, OnlyTheLatestThousandPausesCount) {
  ResumeStats stats;
  for (int i = 0; i < 10; ++i) stats.AddPause(milliseconds(9000));
  for (int i = 0; i < 990; ++i) stats.AddPause(milliseconds(1));
  EXPECT_DOUBLE_EQ(stats.Use().max_ms(), 9000);
  for (int i = 0; i < 10; ++i) stats.AddPause(milliseconds(2));
  EXPECT_DOUBLE_EQ(stats.Use().max_ms(), 2);
}

}  // namespace
}  // namespace tandem
