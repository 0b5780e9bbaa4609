#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/output_stream.h"
#include "tests/support/call_site.h"

namespace tandem {

// What one request produced, for the test to wait on and look at; outlives its sink. A wait that
// lasts longer than WaitLimit() ends the test program and names the line that waited.
// Thread-safe.
class Recording {
 public:
  // A sink that writes into this recording, once.
  std::unique_ptr<TokenSink> NewSink();

  // Wait for the n-th token of choice 0 or the end, whichever is first; whether there are that
  // many.
  bool AwaitTokens(size_t count, CallSite line = CallSite::Current()) const;
  // Wait for the first token of each of `choices` choices, a beam start, or the end; whether it was
  // not the end.
  bool AwaitFirstTokens(size_t choices, CallSite line = CallSite::Current()) const;
  // Waits for the end.
  FinishInfo AwaitFinish(CallSite line = CallSite::Current()) const;

  bool finished() const;
  int num_finishes() const;
  std::vector<int32_t> token_ids(int32_t index = 0) const;
  std::vector<SampledToken> tokens(int32_t index = 0) const;
  // The first token of each choice, or the beam start.
  std::vector<SampledToken> first_tokens() const;
  // Of the prompt's tokens from the second on; each position must have come once, in order.
  std::vector<SampledToken> prompt_logprobs() const;
  // In the order in which they came.
  std::vector<ChoiceEnd> choice_ends() const;
  StageTimes first_stages() const;

 private:
  class Sink;

  mutable absl::Mutex mutex_;
  std::vector<std::vector<SampledToken>> tokens_ ABSL_GUARDED_BY(mutex_);  // [choice]
  std::vector<SampledToken> prompt_logprobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<SampledToken> beam_start_ ABSL_GUARDED_BY(mutex_);
  std::vector<ChoiceEnd> choice_ends_ ABSL_GUARDED_BY(mutex_);
  StageTimes first_stages_ ABSL_GUARDED_BY(mutex_);
  std::vector<FinishInfo> finishes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
