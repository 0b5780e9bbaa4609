#include "engine/loop/step_timer.h"

#include "gtest/gtest.h"

namespace tandem::step_timer_test {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint(std::chrono::hours(1)) + milliseconds(ms); }

TEST(StepTimerTest, AStepBeginsWhereTheOneBeforeEnded) {
  StepTimer timer;
  EXPECT_EQ(timer.Begin(At(5)), At(5)) << "there was none before";
  timer.End(At(9));
  EXPECT_EQ(timer.Begin(At(11)), At(9)) << "messages were handled for two milliseconds";
  timer.End(At(20));
  EXPECT_EQ(timer.Begin(At(20)), At(20));
}

TEST(StepTimerTest, TheTimeInWhichThereWasNothingToComputeIsNobodys) {
  StepTimer timer;
  timer.Begin(At(0));
  timer.End(At(3));
  timer.Begin(At(4));  // the plan is empty
  EXPECT_EQ(timer.Begin(At(500)), At(500));
}

}  // namespace
}  // namespace tandem::step_timer_test
