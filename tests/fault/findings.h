#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// What was found that must not be. Thread-safe.
class FaultFindings {
 public:
  // Printed at once: what comes after may hang.
  void Add(const std::string& what) {
    absl::MutexLock lock(&mutex_);
    std::fprintf(stderr, "FOUND %s\n", what.c_str());
    std::fflush(stderr);
    found_.push_back(what);
  }
  std::vector<std::string> all() const {
    absl::MutexLock lock(&mutex_);
    return found_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
