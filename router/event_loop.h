#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"

namespace tandem {

// What owns a router's requests in flight. Whatever happens elsewhere (a client calls, a worker
// answers, a lease lapses) becomes a task here, and tasks run one after another, so that the state
// machines of requests need no lock. Who posts a task while none runs, runs it: a word from a
// worker goes to its client without the wake-up of another thread. It runs what comes meanwhile,
// too, but only a few, so that it gets back to its own work; the rest is for the thread in Run.
// "The loop's thread" is whoever runs its tasks. These must not block. Idle, it uses no CPU.
class EventLoop {
 public:
  using Task = std::function<void()>;

  // Once `max_tasks` wait, TryPost refuses.
  EventLoop(const Clock& clock, size_t max_tasks) : clock_(clock), max_tasks_(max_tasks) {}

  // Thread-safe; not to be called with a lock in hand that a task may want. TryPost brings new work
  // and is refused on overload; Post is for what belongs to work already admitted, whose number is
  // bounded by it. Both do nothing after Stop.
  [[nodiscard]] bool TryPost(Task task) { return Add(std::move(task), max_tasks_); }
  void Post(Task task);

  // Runs `task` once `when` has come. Thread: the loop's.
  void PostAt(TimePoint when, Task task);

  // Serves until Stop: what was posted before, timers, and since when it is called what is posted
  // runs at once. What was posted before Stop has run when it returns. `clock` must be real time.
  void Run();
  void Stop();  // thread-safe

  // Runs what is queued and due now, and what that posts, then returns: for tests, which own the
  // time.
  void RunReady();

 private:
  bool Add(Task task, size_t most_waiting);
  // Waits until there is something to run and nobody who does; the caller is to run it. False once
  // there never will be.
  bool AwaitTurn();
  // Lot by lot, until there is nothing or more than would make `most` in all. The caller is the one
  // that is busy.
  void RunTasks(size_t most);
  // Returns when the next timer is due.
  TimePoint RunDueTimers();

  const Clock& clock_;
  const size_t max_tasks_;
  std::multimap<TimePoint, Task> timers_;  // of who is busy

  absl::Mutex mutex_;
  MonotonicCondVar changed_;  // for Run
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // Run has begun
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;     // somebody runs tasks
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint next_timer_ ABSL_GUARDED_BY(mutex_) = kNoDeadline;    // as who was busy last left them
  TimePoint sleeps_until_ ABSL_GUARDED_BY(mutex_) = kNoDeadline;  // who runs Run
};

}  // namespace tandem
