#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "grpcpp/client_context.h"
#include "server/generation.h"
#include "tandem/v1/inference.grpc.pb.h"

namespace tandem {

// A client's call on a thread of its own, so that somebody else can act on what it has come to.
// Thread-safe.
class GenerateCall {
 public:
  // `moved` is called on the call's thread after each event and after the end.
  GenerateCall(v1::Inference::Stub& stub, const v1::GenerateRequest& request, Duration timeout,
               std::function<void()> moved);
  // Waits for the end.
  ~GenerateCall();

  void Cancel() { context_.TryCancel(); }
  // Tokens of all choices so far.
  size_t tokens() const;
  bool ended() const;
  // Until there are `tokens`, or it has ended. Whether there are and it has not.
  bool AwaitTokens(size_t tokens) const;
  void AwaitEnd() const;

  // Once ended.
  const absl::Status& status() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return status_; }
  const Generation& generation() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return generation_; }
  int summaries() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return summaries_; }
  Duration took() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return took_; }

 private:
  void Run(v1::Inference::Stub& stub, const v1::GenerateRequest& request);
  void Note(const v1::GenerateResponse& event);

  grpc::ClientContext context_;
  const std::function<void()> moved_;
  mutable absl::Mutex mutex_;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  size_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int summaries_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Duration took_ ABSL_GUARDED_BY(mutex_){};
  std::thread thread_;
};

}  // namespace tandem
