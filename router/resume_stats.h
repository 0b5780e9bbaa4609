#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// How often requests went on elsewhere, and how long their clients waited for that. Thread-safe.
class ResumeStats {
 public:
  void CountLost();
  void CountMigrated();
  void CountGaveUp();
  // From a loss noticed to the next token told.
  void AddPause(Duration pause);

  v1::ResumeUse Use() const;

 private:
  static constexpr size_t kPauses = 1000;  // the latest

  mutable absl::Mutex mutex_;
  uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t migrated_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t gave_up_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_pauses_ ABSL_GUARDED_BY(mutex_) = 0;  // ever
  std::vector<Duration> pauses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
