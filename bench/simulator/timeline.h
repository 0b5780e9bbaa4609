#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"

namespace tandem::simulator {

// Virtual time: it stands still while a task runs and jumps to the next task after that. Tasks of
// one moment run in the order in which they were added, so a run depends on its inputs alone.
// Thread: one at a time.
class Timeline final : public Clock {
 public:
  using Task = std::function<void()>;

  TimePoint Now() const override { return now_; }
  TimePoint start() const { return kStart; }
  Duration elapsed() const { return now_ - kStart; }

  // `when` must not be in the past.
  void At(TimePoint when, Task task);
  void After(Duration delay, Task task) { At(now_ + delay, std::move(task)); }

  // When the next task runs; kNoDeadline without one.
  TimePoint NextTime() const { return events_.empty() ? kNoDeadline : events_.front().when; }
  // Moves the time to the next task and runs it. There must be one.
  void RunNext();
  // Moves the time, to no later than the next task.
  void AdvanceTo(TimePoint when);

  // Drops all tasks, also those that their destruction adds.
  void Clear();

  uint64_t tasks_run() const { return tasks_run_; }

 private:
  // Small, because a heap moves its elements a lot.
  struct Event {
    TimePoint when;
    uint64_t serial = 0;
    size_t task = 0;  // its place in tasks_
  };
  struct IsLater {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.serial > b.serial;
    }
  };

  // Not zero, which stands for "never" in several places of the router and the engine.
  static constexpr TimePoint kStart = TimePoint(std::chrono::hours(1000));

  TimePoint now_ = kStart;
  std::vector<Event> events_;  // a heap, the next one first
  std::vector<Task> tasks_;
  std::vector<size_t> free_;  // places in tasks_ that have none
  uint64_t next_serial_ = 0;
  uint64_t tasks_run_ = 0;
};

}  // namespace tandem::simulator
