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

  using Condition = std::function<bool(const v1::GetStatusResponse&)>;
  // When a status that was asked for after this call first met the condition; kNoDeadline when none
  // did within `patience`. `condition` is called under a lock.
  TimePoint Await(const Condition& condition, Duration patience) const;
  std::shared_ptr<const v1::GetStatusResponse> latest() const;

 private:
  void Run();

  Client client_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const v1::GetStatusResponse> latest_ ABSL_GUARDED_BY(mutex_);
  TimePoint asked_ ABSL_GUARDED_BY(mutex_);  // for the latest
  TimePoint told_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
