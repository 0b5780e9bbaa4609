#pragma once

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "bench/serving/runner.h"

namespace tandem::loadgen {

// Shows on stderr how far a run is, a few times a second, from a thread of its own, so that a slow
// terminal holds up no request. Shows nothing where stderr is no terminal.
class ProgressDisplay {
 public:
  // `counts` must outlive this.
  ProgressDisplay(std::string what, int64_t total, const RunCounts& counts);
  // Clears the line.
  ~ProgressDisplay();

 private:
  void Show();
  void Draw() const;

  const std::string what_;
  const int64_t total_;
  const RunCounts& counts_;
  const TimePoint started_;
  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::loadgen
