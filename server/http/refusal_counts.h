#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// Counts the requests that a server refused before a handler saw them, by the status of the answer.
// Thread-safe.
class RefusalCounts {
 public:
  // Stands for a status where a connection was closed without an answer, because the client did not
  // finish its handshake or did not send the first byte of a request in time.
  static constexpr int kSilent = 0;

  void Add(int status) {
    absl::MutexLock lock(&mutex_);
    ++counts_[status];
  }
  // The counts that are not 0, by status.
  std::vector<std::pair<int, uint64_t>> counts() const {
    absl::MutexLock lock(&mutex_);
    return {counts_.begin(), counts_.end()};
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<int, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
