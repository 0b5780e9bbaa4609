#include "bench/simulator/timeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::simulator {

void Timeline::At(TimePoint when, Task task) {
  TANDEM_CHECK(when >= now_, "a task was added in the past");
  if (free_.empty()) {
    free_.push_back(tasks_.size());
    tasks_.emplace_back();
  }
  const size_t place = free_.back();
  free_.pop_back();
  tasks_[place] = std::move(task);
  events_.push_back({when, next_serial_++, place});
  std::push_heap(events_.begin(), events_.end(), IsLater());
}

void Timeline::RunNext() {
  std::pop_heap(events_.begin(), events_.end(), IsLater());
  const Event event = events_.back();
  events_.pop_back();
  now_ = event.when;
  ++tasks_run_;
  const Task task = std::move(tasks_[event.task]);
  free_.push_back(event.task);
  task();
}

void Timeline::AdvanceTo(TimePoint when) {
  TANDEM_CHECK(when <= NextTime(), "the time would jump over a task");
  now_ = std::max(now_, when);
}

void Timeline::Clear() {
  while (!events_.empty()) {
    events_.clear();
    free_.clear();
    const std::vector<Task> dropped = std::exchange(tasks_, {});
  }
}

}  // namespace tandem::simulator
