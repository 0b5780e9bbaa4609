#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/output_stream.h"

namespace tandem {

// What one request produced, for the test to wait on and look at; outlives its sink.
// Thread-safe.
class Recording {
 public:
  // A sink that writes into this recording, once.
  std::unique_ptr<TokenSink> NewSink();

  // Wait for the n-th token or the end, whichever is first; whether there are that many.
  bool AwaitTokens(size_t count) const;
  // Waits for the end.
  FinishInfo AwaitFinish() const;

  bool finished() const;
  int num_finishes() const;
  std::vector<int32_t> token_ids() const;
  StageTimes first_stages() const;

 private:
  class Sink;

  mutable absl::Mutex mutex_;
  std::vector<int32_t> token_ids_ ABSL_GUARDED_BY(mutex_);
  StageTimes first_stages_ ABSL_GUARDED_BY(mutex_);
  std::vector<FinishInfo> finishes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
