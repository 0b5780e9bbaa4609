#pragma once

#include "absl/synchronization/mutex.h"

namespace tandem {

// For programs that serve or measure, before their first thread. absl as Debian builds it looks for
// cycles of locks whenever one is taken, with one lock of the whole process: three times the cost
// of a lock. Tests keep that.
inline void LockWithoutLookingForDeadlocks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace tandem
