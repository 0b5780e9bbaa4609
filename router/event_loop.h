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

// Owns a router's requests in flight. Everything that happens elsewhere (a client calls, a worker
// answers, a lease lapses) becomes a task here, and tasks run one after another, so that the state
// machines of requests need no lock. A thread that posts a task while none runs also runs it, so
// that a worker's token reaches its client without waking another thread. That thread runs a few of
// the tasks that arrive meanwhile and then returns to its own work; the thread in Run does the
// rest. "The loop's thread" is the thread that runs its tasks. Tasks must not block. An idle loop
// uses no CPU.
class EventLoop {
 public:
  using Task = std::function<void()>;

  // TryPost refuses tasks while `max_tasks` of them wait.
  EventLoop(const Clock& clock, size_t max_tasks) : clock_(clock), max_tasks_(max_tasks) {}

  // Thread-safe; the caller must hold no lock that a task may take. TryPost brings new work and is
  // refused on overload; Post is for tasks of work that was admitted, which bounds their number.
  // Both do nothing after Stop.
  [[nodiscard]] bool TryPost(Task task) { return Add(std::move(task), max_tasks_); }
  void Post(Task task);

  // Runs `task` once `when` has come. Thread: the loop's.
  void PostAt(TimePoint when, Task task);

  // Runs tasks and timers until Stop. Before Run is called, posted tasks only wait; once it was,
  // they run as they come. All tasks that were posted before Stop have run when it returns. `clock`
  // must be real time.
  void Run();
  void Stop();  // thread-safe

  // Runs the tasks and timers that are due now, and what they post, then returns: for tests and
  // simulations, which own the time. Returns when the next timer is due; kNoDeadline without one.
  TimePoint RunReady();

 private:
  bool Add(Task task, size_t most_waiting);
  // Waits until there is a task or a timer to run and no thread runs any; the caller then runs it.
  // False once the loop was stopped and nothing is left to run.
  bool AwaitTurn();
  // Runs tasks, a batch at a time, until none waits or the next batch would exceed `most` in all.
  // The caller has set busy_.
  void RunTasks(size_t most);
  // Runs the timers that are due. Returns when the next one is due; kNoDeadline without one.
  TimePoint RunDueTimers();

  const Clock& clock_;
  const size_t max_tasks_;
  std::multimap<TimePoint, Task> timers_;  // belongs to the thread that set busy_

  absl::Mutex mutex_;
  MonotonicCondVar changed_;  // wakes the thread in Run
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // Run has begun
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;     // a thread runs tasks
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint next_timer_ ABSL_GUARDED_BY(mutex_) = kNoDeadline;    // as of the last run of timers_
  TimePoint sleeps_until_ ABSL_GUARDED_BY(mutex_) = kNoDeadline;  // of the thread in Run
};

}  // namespace tandem
