#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "server/client.h"

namespace tandem {

// Asks a router for its status again and again, for many who wait for something in it.
// Thread-safe.
class StatusWatch {
 public:
  explicit StatusWatch(const std::string& router);
  ~StatusWatch();

  // The most that was seen at once, over all workers.
  struct Peaks {
    int32_t sending = 0;
    int32_t waiting_reservations = 0;
    int32_t draining_reservations = 0;

    void Raise(const Peaks& some);
  };
  Peaks peaks() const;

  using Condition = std::function<bool(const v1::GetStatusResponse&)>;
  // When a status that was asked for after this call first met the condition; kNoDeadline when none
  // did within `patience`. `condition` is called under a lock.
  TimePoint Await(const Condition& condition, Duration patience) const;
  // Until the condition is met by what all workers reported after this call: what was said
  // meanwhile, and on its way before, does not count. Whether it was.
  bool AwaitReported(const Condition& condition, Duration patience) const;
  std::shared_ptr<const v1::GetStatusResponse> latest() const;

 private:
  using DatedCondition = std::function<bool(const v1::GetStatusResponse&, TimePoint asked)>;

  void Run();
  void Note(const v1::GetStatusResponse& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TimePoint AwaitDated(const DatedCondition& condition, Duration patience) const;

  Client client_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const v1::GetStatusResponse> latest_ ABSL_GUARDED_BY(mutex_);
  TimePoint asked_ ABSL_GUARDED_BY(mutex_);  // for the latest
  TimePoint told_ ABSL_GUARDED_BY(mutex_);
  Peaks peaks_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
