#include "router/event_loop.h"

namespace tandem {

void EventLoop::PostAt(TimePoint when, Task task) { timers_.emplace(when, std::move(task)); }

TimePoint EventLoop::RunDueTimers() {
  while (!timers_.empty() && timers_.begin()->first <= clock_.Now()) {
    const Task task = std::move(timers_.extract(timers_.begin()).mapped());
    task();
  }
  return timers_.empty() ? kNoDeadline : timers_.begin()->first;
}

void EventLoop::Run() {
  while (true) {
    const bool closed = tasks_.closed();
    for (const Task& task : tasks_.WaitAndDrain(RunDueTimers())) task();
    if (closed) return;
  }
}

void EventLoop::RunReady() {
  while (true) {
    RunDueTimers();
    const auto tasks = tasks_.Drain();
    if (tasks.empty()) return;
    for (const Task& task : tasks) task();
  }
}

}  // namespace tandem
