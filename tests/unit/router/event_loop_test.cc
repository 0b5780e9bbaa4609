#include "router/event_loop.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace tandem::event_loop_test {
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

TEST(EventLoopTest, RefusesNewWorkWhenFullButNotTasksOfAdmittedWork) {
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

class RunningLoopTest : public testing::Test {
 protected:
  // From here on a thread that posts a task runs it.
  void SetUp() override {
    absl::Notification runs;
    loop_.Post([&] { runs.Notify(); });
    thread_ = std::thread([this] { loop_.Run(); });
    runs.WaitForNotification();
  }
  void TearDown() override {
    loop_.Stop();
    thread_.join();
  }
  // Posts until this thread runs the task that it posts: until then another thread is busy.
  void AwaitIdle() {
    std::thread::id ran_by;
    while (ran_by != std::this_thread::get_id()) {
      absl::Notification ran;
      loop_.Post([&] {
        ran_by = std::this_thread::get_id();
        ran.Notify();
      });
      ran.WaitForNotification();
    }
  }

  SteadyClock clock_;
  EventLoop loop_{clock_, 8};
  std::thread thread_;
};

TEST_F(RunningLoopTest, AThreadThatPostsWhileNoTaskRunsAlsoRunsIt) {
  AwaitIdle();
  std::vector<int> ran;
  loop_.Post([&] {
    loop_.Post([&] { ran.push_back(2); });
    ran.push_back(1);
  });
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_F(RunningLoopTest, AThreadThatPostsWhileAnotherRunsTasksDoesNotWait) {
  AwaitIdle();
  absl::Notification running;
  absl::Notification go_on;
  std::thread busy([&] {
    loop_.Post([&] {
      running.Notify();
      go_on.WaitForNotification();
    });
  });
  running.WaitForNotification();
  std::thread::id ran_by;
  loop_.Post([&] { ran_by = std::this_thread::get_id(); });
  const std::thread::id busy_id = busy.get_id();
  go_on.Notify();
  busy.join();
  EXPECT_EQ(ran_by, busy_id);
}

TEST_F(RunningLoopTest, AThreadThatPostsDoesNotRunAllTasksThatArriveMeanwhile) {
  AwaitIdle();
  constexpr int kMany = 50;
  std::vector<std::thread::id> ran_by;
  absl::Notification ended;
  loop_.Post([&] {
    for (int i = 0; i < kMany; ++i) {
      loop_.Post([&] { ran_by.push_back(std::this_thread::get_id()); });
    }
    loop_.Post([&] { ended.Notify(); });
  });
  ended.WaitForNotification();
  EXPECT_EQ(std::ranges::count(ran_by, thread_.get_id()), kMany);
}

// Else a worker's report would not be answered while others keep the router busy.
TEST_F(RunningLoopTest, AThreadThatPostsReturnsThoughThereIsAlwaysAnotherTask) {
  AwaitIdle();
  std::atomic<bool> enough = false;
  std::thread::id ran_by;
  absl::Notification ended;
  std::function<void()> again = [&] {
    ran_by = std::this_thread::get_id();
    if (enough) return ended.Notify();
    loop_.Post(again);
  };
  loop_.Post(again);
  enough = true;
  ended.WaitForNotification();
  EXPECT_EQ(ran_by, thread_.get_id());
}

TEST_F(RunningLoopTest, TasksOfManyThreadsNeverOverlapAndKeepTheirOrder) {
  constexpr int kThreads = 8;
  constexpr int kEach = 2000;
  std::vector<std::vector<int>> ran(kThreads);  // by poster
  std::atomic<int> inside = 0;
  int overlaps = 0;
  std::vector<std::thread> posters;
  for (int poster = 0; poster < kThreads; ++poster) {
    posters.emplace_back([&, poster] {
      for (int i = 0; i < kEach; ++i) {
        loop_.Post([&, poster, i] {
          if (inside.fetch_add(1) != 0) ++overlaps;
          ran[poster].push_back(i);
          inside.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  AwaitIdle();
  EXPECT_EQ(overlaps, 0);
  for (const std::vector<int>& one : ran) {
    ASSERT_EQ(one.size(), kEach);
    EXPECT_TRUE(std::ranges::is_sorted(one));
  }
}

// No thread posts any more by then, so the thread in Run has to run it.
TEST_F(RunningLoopTest, ATimerThatAPostedTaskSetsRunsWhenItIsDue) {
  AwaitIdle();
  absl::Notification later;
  absl::Notification sooner;
  loop_.Post([&] { loop_.PostAt(clock_.Now() + milliseconds(20), [&] { later.Notify(); }); });
  loop_.Post([&] { loop_.PostAt(clock_.Now() + milliseconds(5), [&] { sooner.Notify(); }); });
  sooner.WaitForNotification();
  later.WaitForNotification();
}

TEST_F(RunningLoopTest, RunEndsOnlyAfterTheBusyThread) {
  AwaitIdle();
  absl::Notification running;
  absl::Notification go_on;
  std::atomic<bool> ran = false;
  std::thread busy([&] {
    loop_.Post([&] {
      running.Notify();
      go_on.WaitForNotification();
      ran = true;
    });
  });
  running.WaitForNotification();
  loop_.Stop();
  go_on.Notify();
  thread_.join();
  EXPECT_TRUE(ran);
  busy.join();
  thread_ = std::thread([] {});  // for TearDown
}

}  // namespace
}  // namespace tandem::event_loop_test
