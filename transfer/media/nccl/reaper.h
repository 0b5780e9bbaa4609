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
#include "base/condition_variable.h"
#include "transfer/media/nccl/communicator.h"

namespace tandem {

// A thread that ends communicators one after the other, because an abort waits for NCCL. A
// communicator keeps what it uses until its abort has returned, because its kernels may still write.
// Thread-safe.
class NcclReaper {
 public:
  // An abort that takes longer than `patience` is assumed never to end.
  explicit NcclReaper(std::chrono::milliseconds patience);
  // Waits for the aborts, but at most for `patience`. Then it leaves the thread and what that holds
  // behind.
  ~NcclReaper();
  NcclReaper(const NcclReaper&) = delete;
  NcclReaper& operator=(const NcclReaper&) = delete;

  void End(NcclConnection connection);

  // UNAVAILABLE while an abort takes too long; the process should then be restarted.
  absl::Status health() const;
  // Connections that have not ended yet.
  size_t waiting() const;

 private:
  // Shared with the thread, which may outlive the reaper.
  struct State {
    mutable absl::Mutex mutex;
    MonotonicCondVar changed;
    std::deque<NcclConnection> connections ABSL_GUARDED_BY(mutex);
    TimePoint abort_began ABSL_GUARDED_BY(mutex) = kNoDeadline;  // kNoDeadline: none is under way
    bool stopping ABSL_GUARDED_BY(mutex) = false;
    bool stopped ABSL_GUARDED_BY(mutex) = false;
  };

  static void Run(const std::shared_ptr<State>& state);
  // Empty when the thread is to stop.
  static std::optional<NcclConnection> TakeOne(State& state);

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace tandem
