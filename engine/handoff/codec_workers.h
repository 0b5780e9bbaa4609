#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// The threads that encode and decode the KV of hand-offs, so that neither the engine nor a
// transport waits for a codec. Callers must bound the number of jobs that they queue.
// Thread-safe.
class CodecWorkers {
 public:
  explicit CodecWorkers(int32_t num_threads);
  // Runs the jobs that are still queued, then joins the threads.
  ~CodecWorkers();

  int32_t num_threads() const { return static_cast<int32_t>(threads_.size()); }
  // Queues a job. Jobs begin in the order in which they were queued, and must not queue other jobs.
  void Queue(std::function<void()> job);

 private:
  void Run();
  bool has_work() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !jobs_.empty() || stopping_; }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // declared last: they use the members above
};

}  // namespace tandem
