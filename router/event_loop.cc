#include "router/event_loop.h"

#include <limits>

#include "absl/time/time.h"

namespace tandem {

void EventLoop::Post(Task task) { (void)Add(std::move(task), std::numeric_limits<size_t>::max()); }

bool EventLoop::Add(Task task, size_t most) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || tasks_.size() >= most) return false;
    tasks_.push_back(std::move(task));
    if (!running_ || busy_) return true;
    busy_ = true;
  }
  RunTasks();
  return true;
}

void EventLoop::PostAt(TimePoint when, Task task) { timers_.emplace(when, std::move(task)); }

TimePoint EventLoop::RunDueTimers() {
  while (!timers_.empty() && timers_.begin()->first <= clock_.Now()) {
    const Task task = std::move(timers_.extract(timers_.begin()).mapped());
    task();
  }
  return timers_.empty() ? kNoDeadline : timers_.begin()->first;
}

void EventLoop::RunTasks() {
  while (true) {
    const TimePoint next_timer = RunDueTimers();
    std::vector<Task> tasks;
    {
      absl::MutexLock lock(&mutex_);
      if (tasks_.empty()) {
        busy_ = false;
        next_timer_ = next_timer;
        if (closed_ || next_timer < sleeps_until_) changed_.Signal();
        return;
      }
      tasks.swap(tasks_);
    }
    for (const Task& task : tasks) task();
  }
}

bool EventLoop::AwaitTurn() {
  absl::MutexLock lock(&mutex_);
  running_ = true;
  while (busy_ || (tasks_.empty() && next_timer_ > clock_.Now())) {
    if (closed_ && !busy_) return false;
    // Who is busy sees to the timers, and says when the next one is due.
    sleeps_until_ = busy_ ? kNoDeadline : next_timer_;
    if (sleeps_until_ == kNoDeadline) {
      changed_.Wait(&mutex_);
    } else {
      changed_.WaitWithTimeout(&mutex_, absl::FromChrono(sleeps_until_ - clock_.Now()));
    }
  }
  busy_ = true;
  return true;
}

void EventLoop::Run() {
  while (AwaitTurn()) RunTasks();
}

void EventLoop::Stop() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  changed_.Signal();
}

void EventLoop::RunReady() {
  {
    absl::MutexLock lock(&mutex_);
    busy_ = true;
  }
  RunTasks();
}

}  // namespace tandem
