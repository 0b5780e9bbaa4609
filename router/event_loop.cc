#include "router/event_loop.h"

#include <limits>
#include <utility>

namespace tandem {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
constexpr size_t kMostOfPoster = 8;  // the most tasks that a thread runs when it posts one

}  // namespace

void EventLoop::Post(Task task) { (void)Add(std::move(task), kNoLimit); }

bool EventLoop::Add(Task task, size_t most_waiting) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || tasks_.size() >= most_waiting) return false;
    tasks_.push_back(std::move(task));
    // If a task waited before this one though no thread runs any, the thread in Run has been woken
    // for it and will run this one, too.
    if (!running_ || busy_ || tasks_.size() > 1) return true;
    busy_ = true;
  }
  RunTasks(kMostOfPoster);
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

void EventLoop::RunTasks(size_t most) {
  for (size_t ran = 0;;) {
    const TimePoint next_timer = RunDueTimers();
    std::vector<Task> tasks;
    {
      absl::MutexLock lock(&mutex_);
      if (tasks_.empty() || tasks_.size() > most - ran) {
        busy_ = false;
        next_timer_ = next_timer;
        if (!tasks_.empty() || closed_ || next_timer < sleeps_until_) changed_.Signal();
        return;
      }
      tasks.swap(tasks_);
    }
    for (const Task& task : tasks) task();
    ran += tasks.size();
  }
}

bool EventLoop::AwaitTurn() {
  absl::MutexLock lock(&mutex_);
  running_ = true;
  while (busy_ || (tasks_.empty() && next_timer_ > clock_.Now())) {
    if (closed_ && !busy_) return false;
    // The thread that runs tasks also runs the timers, and sets next_timer_ when it is done.
    sleeps_until_ = busy_ ? kNoDeadline : next_timer_;
    changed_.WaitUntil(mutex_, sleeps_until_);
  }
  busy_ = true;
  return true;
}

void EventLoop::Run() {
  while (AwaitTurn()) RunTasks(kNoLimit);
}

void EventLoop::Stop() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  changed_.Signal();
}

TimePoint EventLoop::RunReady() {
  {
    absl::MutexLock lock(&mutex_);
    const TimePoint next_timer = timers_.empty() ? kNoDeadline : timers_.begin()->first;
    if (tasks_.empty() && next_timer > clock_.Now()) return next_timer;
    busy_ = true;
  }
  RunTasks(kNoLimit);
  absl::MutexLock lock(&mutex_);
  return next_timer_;
}

}  // namespace tandem
