#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/bounded_queue.h"
#include "base/clock.h"

namespace tandem {

// The one thread that owns a router's requests in flight. Whatever happens elsewhere (a client
// calls, a worker answers, a lease lapses) becomes a task here, so that the state machines of
// requests need no lock. Tasks must not block. Idle, it uses no CPU.
class EventLoop {
 public:
  using Task = std::function<void()>;

  // Once `max_tasks` wait, TryPost refuses.
  EventLoop(const Clock& clock, size_t max_tasks) : clock_(clock), tasks_(max_tasks) {}

  // Thread-safe. TryPost brings new work and is refused on overload; Post is for what belongs to
  // work already admitted, whose number is bounded by it. Both do nothing after Stop.
  [[nodiscard]] bool TryPost(Task task) { return tasks_.TryPush(std::move(task)); }
  void Post(Task task) { tasks_.PushAlways(std::move(task)); }

  // Runs `task` once `when` has come. Thread: the loop's.
  void PostAt(TimePoint when, Task task);

  // Runs tasks until Stop; what was posted before Stop still runs. `clock` must be real time.
  void Run();
  void Stop() { tasks_.Close(); }  // thread-safe

  // Runs what is queued and due now, and what that posts, then returns: for tests, which own the
  // time.
  void RunReady();

 private:
  // Returns when the next timer is due.
  TimePoint RunDueTimers();

  const Clock& clock_;
  BoundedQueue<Task> tasks_;
  std::multimap<TimePoint, Task> timers_;
};

}  // namespace tandem
