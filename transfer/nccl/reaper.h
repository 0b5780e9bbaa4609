#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "transfer/nccl/communicator.h"

namespace tandem {

// The thread that ends communicators, one after the other, since an abort waits for NCCL. What
// they worked with stays theirs until then: their kernels may still write to it.
// Thread-safe.
class NcclReaper {
 public:
  // An abort that takes longer than `patience` is one that never ends.
  explicit NcclReaper(std::chrono::milliseconds patience);
  // Waits for the aborts, for `patience` at most: then the thread, and what it holds, is left.
  ~NcclReaper();
  NcclReaper(const NcclReaper&) = delete;
  NcclReaper& operator=(const NcclReaper&) = delete;

  void End(NcclConnection connection);

  // UNAVAILABLE while an abort takes too long: the process should be started anew.
  absl::Status health() const;
  // Connections that have not ended yet.
  size_t waiting() const;

 private:
  // Outlives the reaper where the thread does.
  struct State {
    mutable absl::Mutex mutex;
    std::deque<NcclConnection> connections ABSL_GUARDED_BY(mutex);
    TimePoint abort_began ABSL_GUARDED_BY(mutex) = kNoDeadline;  // unless none is under way
    bool stopping ABSL_GUARDED_BY(mutex) = false;
    bool stopped ABSL_GUARDED_BY(mutex) = false;
  };

  static void Run(const std::shared_ptr<State>& state);
  // None when it is to stop.
  static std::optional<NcclConnection> TakeOne(State& state);

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace tandem
