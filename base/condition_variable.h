#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace tandem {

// A condition variable whose deadlines go by the monotonic clock. The timed waits of absl (as of
// 20220623) go by the system clock: when that is set back by a minute, they last a minute longer,
// and leases lapse. Everything that waits for at most some time uses this class; a test forbids
// other timed waits. A thread that changes what a condition depends on calls Signal, with or
// without the mutex held.
class MonotonicCondVar {
 public:
  // Releases `mutex`, waits for a signal or the deadline, and takes `mutex` again. False when the
  // deadline has passed. May wake up for no reason.
  bool WaitUntil(absl::Mutex& mutex, TimePoint deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    // A thread that signals after `mutex` is released needs this lock, which it gets only once the
    // wait has begun, so that no signal is missed.
    std::unique_lock<std::mutex> waiting(signals_);
    mutex.Unlock();
    bool in_time = true;
    if (deadline == kNoDeadline) {
      changed_.wait(waiting);
    } else {
      in_time = changed_.wait_until(waiting, deadline) == std::cv_status::no_timeout;
    }
    waiting.unlock();
    mutex.Lock();
    return in_time;
  }

  // Waits until `condition()`, which is called with `mutex` held. False when the deadline passes
  // first.
  template <typename Condition>
  bool AwaitUntil(absl::Mutex& mutex, TimePoint deadline, const Condition& condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    while (!condition()) {
      if (!WaitUntil(mutex, deadline)) return condition();
    }
    return true;
  }
  // As AwaitUntil, with a deadline that is `timeout` from now.
  template <typename Condition>
  bool AwaitFor(absl::Mutex& mutex, Duration timeout, const Condition& condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return AwaitUntil(mutex, std::chrono::steady_clock::now() + timeout, condition);
  }

  // Wakes every thread that waits on this condition variable.
  void Signal() {
    const std::lock_guard<std::mutex> lock(signals_);
    changed_.notify_all();
  }

 private:
  std::mutex signals_;  // taken after a waiter's mutex; held only to wait or to notify
  std::condition_variable changed_;
};

}  // namespace tandem
