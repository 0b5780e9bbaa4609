#pragma once

#include "absl/synchronization/mutex.h"

namespace tandem {

// Call it before the first thread of a program that serves or measures. Debian builds absl with a
// search for lock cycles at every acquisition, under one lock of the process, which triples the
// cost of a lock. Tests keep the search.
inline void LockWithoutLookingForDeadlocks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace tandem
