#include "bench/simulator/timeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::simulator {

void Timeline::At(TimePoint when, Task task) {
  TANDEM_CHECK(when >= now_, "a task was added in the past");
  events_.push_back({when, next_serial_++, std::move(task)});
  std::push_heap(events_.begin(), events_.end(), IsLater);
}

void Timeline::RunNext() {
  std::pop_heap(events_.begin(), events_.end(), IsLater);
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.when;
  ++tasks_run_;
  event.task();
}

void Timeline::AdvanceTo(TimePoint when) {
  TANDEM_CHECK(when <= NextTime(), "the time would jump over a task");
  now_ = std::max(now_, when);
}

void Timeline::Clear() {
  while (!events_.empty()) {
    const std::vector<Event> dropped = std::exchange(events_, {});
  }
}

}  // namespace tandem::simulator
