#include "router/event_loop.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(EventLoopTest, RunsTasksInOrderAndTimersWhenDue) {
  FakeClock clock;
  EventLoop loop(clock, 8);
  std::vector<int> ran;
  loop.Post([&] {
    ran.push_back(1);
    loop.PostAt(clock.Now() + milliseconds(20), [&] { ran.push_back(4); });
    loop.PostAt(clock.Now() + milliseconds(10), [&] { ran.push_back(3); });
    loop.Post([&] { ran.push_back(2); });
  });
  loop.RunReady();
  EXPECT_THAT(ran, ElementsAre(1, 2));
  clock.Advance(milliseconds(10));
  loop.RunReady();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  clock.Advance(milliseconds(10));
  loop.RunReady();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3, 4));
}

TEST(EventLoopTest, RefusesNewWorkWhenFullButNotWhatBelongsToOld) {
  FakeClock clock;
  EventLoop loop(clock, 1);
  int ran = 0;
  EXPECT_TRUE(loop.TryPost([&] { ++ran; }));
  EXPECT_FALSE(loop.TryPost([&] { ++ran; }));
  loop.Post([&] { ++ran; });
  loop.RunReady();
  EXPECT_EQ(ran, 2);
}

TEST(EventLoopTest, RunEndsAfterStopWithEverythingPostedBefore) {
  SteadyClock clock;
  EventLoop loop(clock, 8);
  int ran = 0;
  std::thread thread([&] { loop.Run(); });
  for (int i = 0; i < 100; ++i) loop.Post([&] { ++ran; });
  loop.Stop();
  thread.join();
  EXPECT_EQ(ran, 100);
  loop.Post([&] { ++ran; });
  EXPECT_FALSE(loop.TryPost([&] { ++ran; }));
}

}  // namespace
}  // namespace tandem
