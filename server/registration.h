#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem {

struct RegistrationOptions {
  std::vector<std::string> routers;      // host:port of each
  v1::RegisterRequest self;              // all but the load
  std::function<v1::WorkerLoad()> load;  // thread-safe
};

// Keeps a worker known to its routers: registers, renews the leases, registers again when a router
// has forgotten it or came back, and takes its leave. One thread per router, asleep between
// heartbeats. Nothing here stops the worker from serving: without a router it goes on trying.
class Registration {
 public:
  explicit Registration(RegistrationOptions options);
  // As Leave.
  ~Registration();

  // The load has changed: tells the routers soon, many changes at once.
  void Nudge();
  // True once every router knows this worker; false when `deadline` came first.
  bool WaitUntilKnown(TimePoint deadline);
  // Deregisters everywhere. Idempotent.
  void Leave();

 private:
  class Link;

  void Run(Link& link);
  // True when the wait ended because of Leave.
  bool Sleep(absl::Duration duration);
  // Sleeps until the next heartbeat is due, or a moment after a nudge that `link` has not told of.
  bool SleepUntilNews(Link& link, absl::Duration heartbeat);

  const RegistrationOptions options_;
  absl::Mutex mutex_;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t nudges_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_known_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
