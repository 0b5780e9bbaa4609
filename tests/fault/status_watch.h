#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "server/commands/client.h"

namespace tandem {

// Counts of hand-offs, summed over the lives of workers: what each reported last, so without what
// one did in the half second before it was killed.
struct HandoffSum {
  uint64_t lives = 0;
  v1::HandoffUse counts;

  void Add(const HandoffSum& some);
};

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
  // Of all lives of all workers.
  HandoffSum handoffs() const;

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
  using Life = std::pair<std::string, int32_t>;  // name, process id
  std::map<Life, v1::HandoffUse> handoffs_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
