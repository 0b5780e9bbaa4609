#include "base/condition_variable.h"

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"

namespace tandem::condition_variable_test {
namespace {

class ConditionVariableTest : public testing::Test {
 protected:
  void Count() {
    absl::MutexLock lock(&mutex_);
    ++count_;
    changed_.Signal();
  }

  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_F(ConditionVariableTest, AConditionThatHoldsIsNotWaitedFor) {
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(changed_.AwaitUntil(mutex_, TimePoint::min(), [] { return true; }));
}

TEST_F(ConditionVariableTest, AWaitEndsAtItsDeadlineAndNotBefore) {
  absl::MutexLock lock(&mutex_);
  const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_FALSE(changed_.AwaitUntil(mutex_, deadline, [] { return false; }));
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  EXPECT_FALSE(changed_.WaitUntil(mutex_, TimePoint::min()));
}

TEST_F(ConditionVariableTest, NoSignalIsLostBetweenTwoThreads) {
  constexpr int kTurns = 2000;
  std::thread other([this] {
    for (int i = 0; i < kTurns; ++i) {
      {
        absl::MutexLock lock(&mutex_);
        const auto mine = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ % 2 == 1; };
        EXPECT_TRUE(changed_.AwaitUntil(mutex_, kNoDeadline, mine));
      }
      Count();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    Count();
    absl::MutexLock lock(&mutex_);
    const auto mine = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ % 2 == 0; };
    EXPECT_TRUE(changed_.AwaitFor(mutex_, std::chrono::minutes(1), mine));
  }
  other.join();
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(count_, 2 * kTurns);
}

TEST_F(ConditionVariableTest, EveryThreadThatWaitsWakesUp) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      absl::MutexLock lock(&mutex_);
      const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ > 0; };
      EXPECT_TRUE(changed_.AwaitUntil(mutex_, kNoDeadline, any));
    });
  }
  Count();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::condition_variable_test
