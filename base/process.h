#pragma once

#include "absl/synchronization/mutex.h"

namespace tandem {

// Turns off absl's search for lock cycles. Debian builds absl so that every acquisition of a lock
// makes this search, under one lock of the process, which triples the cost of a lock. A program
// that serves or measures calls this before its first thread starts; tests keep the search.
inline void LockWithoutLookingForDeadlocks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace tandem
